//! [`Repaired`] as a reader and writer.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::super::{CHUNK, MAX_HEADER_BLOCK, MAX_HEADER_LIST, RepairError, Repaired};
use super::kit::*;

fn request(stream: u32) -> Frame {
    let block = encode(&mut loona_hpack::Encoder::new(), &get_info(PATH_AUTHORITY));
    Frame::new(HEADERS, END_HEADERS | END_STREAM, stream, block)
}

/// All that a reader gets for these bytes from a client that then closes, and the error that ends it.
async fn read_all(sent: &[u8], piece: usize) -> (Vec<u8>, io::Result<()>) {
    let (mut client, server) = duplex(piece);
    let mut repaired = Repaired::new(server);
    let mut read = Vec::new();
    let write = async {
        // A reader that fails does not take the rest.
        client.write_all(sent).await.ok();
        drop(client);
    };
    let (ended, ()) = tokio::join!(
        async {
            let ended = repaired.read_to_end(&mut read).await.map(drop);
            drop(repaired);
            ended
        },
        write
    );
    (read, ended)
}

#[tokio::test]
async fn reads_the_same_through_a_narrow_pipe_as_through_a_wide_one() {
    let sent = stream(&[request(1), Frame::new(DATA, 0, 1, vec![1; 30_000]), request(3)]);
    let (expected, _) = repair_pieces([sent.as_slice()]);
    for piece in [1, 7, 100_000] {
        let (read, ended) = read_all(&sent, piece).await;
        assert!(ended.is_ok() && read == expected, "{piece}");
    }
}

#[tokio::test]
async fn an_error_comes_after_what_was_good_and_stays() {
    let good = stream(&[request(1)]);
    let sent = [&good[..], &Frame::new(CONTINUATION, 0, 1, []).bytes()].concat();
    let (expected, _) = repair_pieces([good.as_slice()]);
    let (mut client, server) = duplex(100_000);
    client.write_all(&sent).await.unwrap();
    let mut repaired = Repaired::new(server);
    let mut read = vec![0; expected.len()];
    repaired.read_exact(&mut read).await.unwrap();
    assert_eq!(read, expected);
    for _ in 0..2 {
        let error = repaired.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<RepairError>());
        assert_eq!(inner, Some(&RepairError::NothingToContinue { stream: 1 }));
    }
}

#[tokio::test]
async fn a_client_that_leaves_inside_a_frame_is_an_end_and_no_error() {
    let sent = stream(&[request(1)]);
    let (read, ended) = read_all(&sent[..sent.len() - 1], 100_000).await;
    assert!(ended.is_ok());
    assert_eq!(read, PREFACE);
}

#[tokio::test]
async fn answers_pass_unchanged() {
    let (mut client, server) = duplex(1_000);
    let mut repaired = Repaired::new(server);
    repaired.write_all(b"any bytes").await.unwrap();
    repaired.shutdown().await.unwrap();
    let mut read = Vec::new();
    client.read_to_end(&mut read).await.unwrap();
    assert_eq!(read, b"any bytes");
}

/// Small requests, every one of which stands for nearly 64 KiB, are not all unfolded for one small read.
#[tokio::test]
async fn what_waits_for_the_reader_is_bounded() {
    let entry = [&b"\x40\x01a\x7f\xa1\x1e"[..], &[b'x'; 4_000]].concat();
    let mut frames = vec![Frame::new(HEADERS, END_HEADERS, 1, entry)];
    frames.extend((1..200).map(|n| Frame::new(HEADERS, END_HEADERS, 2 * n + 1, [0xbe; 16])));
    let sent = stream(&frames);
    let (mut client, server) = duplex(sent.len());
    client.write_all(&sent).await.unwrap();
    let mut repaired = Repaired::new(server);
    let mut most = 0;
    for _ in 0..5_000 {
        repaired.read_exact(&mut [0; 100]).await.unwrap();
        most = most.max(repaired.ready.len());
    }
    assert!(most > MAX_HEADER_LIST / 2, "the case is what it says: {most}");
    assert!(most <= CHUNK + MAX_HEADER_LIST.max(MAX_HEADER_BLOCK), "{most}");
}

/// One that never speaks HTTP/2 would hold a file open for as long as it likes, and a thousand of them all files.
#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_begin_is_given_up_and_one_that_began_may_be_silent() {
    let limit = Duration::from_secs(10);
    for sent in [&b""[..], &PREFACE[..7]] {
        let (mut client, server) = duplex(100);
        client.write_all(sent).await.unwrap();
        let before = tokio::time::Instant::now();
        let error = Repaired::new(server).begin_within(limit).read_u8().await.unwrap_err();
        assert_eq!((error.kind(), before.elapsed()), (io::ErrorKind::TimedOut, limit));
    }
    let (mut client, server) = duplex(100);
    client.write_all(PREFACE).await.unwrap();
    let mut repaired = Repaired::new(server).begin_within(limit);
    let mut read = vec![0; PREFACE.len()];
    repaired.read_exact(&mut read).await.unwrap();
    assert!(
        tokio::time::timeout(limit * 100, repaired.read_u8()).await.is_err(),
        "kubelet's connection idles for hours"
    );
    client.write_all(&Frame::new(4, 0, 0, []).bytes()).await.unwrap();
    assert_eq!(repaired.read_u8().await.unwrap(), 0);
}
