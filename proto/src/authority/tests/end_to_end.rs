//! Kubelet's dial, frame by frame, against a real tonic server on a unix socket: with the repair and without.

use std::path::Path;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::super::incoming;
use super::kit::*;
use crate::registration::v1::registration_server::{Registration, RegistrationServer};
use crate::registration::v1::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};

const NAME: &str = "gpu.devicetaint.dev";
const PROTOCOL_ERROR: u32 = 1;

struct Driver;

#[tonic::async_trait]
impl Registration for Driver {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo { name: NAME.to_owned(), ..PluginInfo::default() }))
    }

    async fn notify_registration_status(
        &self,
        _: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

/// A server on a socket of its own, until it is dropped.
struct Served {
    folder: TempDir,
    task: JoinHandle<Result<(), tonic::transport::Error>>,
}

impl Served {
    fn start(repaired: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("reg.sock")).unwrap();
        let router = Server::builder().add_service(RegistrationServer::new(Driver));
        let task = if repaired {
            tokio::spawn(router.serve_with_incoming(incoming(listener)))
        } else {
            tokio::spawn(router.serve_with_incoming(UnixListenerStream::new(listener)))
        };
        Self { folder, task }
    }

    async fn dial(&self) -> Client {
        Client::dial(&self.folder.path().join("reg.sock")).await
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How a call ended.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// The trailers' grpc-status.
    Status(String),
    /// RST_STREAM with this code.
    Reset(u32),
}

/// As much of an HTTP/2 client as a test needs.
struct Client {
    socket: UnixStream,
    encoder: loona_hpack::Encoder<'static>,
    decoder: loona_hpack::Decoder<'static>,
    read: Vec<u8>,
    next_stream: u32,
}

impl Client {
    async fn dial(path: &Path) -> Self {
        let mut socket = UnixStream::connect(path).await.unwrap();
        socket.write_all(&stream(&[Frame::new(SETTINGS, 0, 0, [])])).await.unwrap();
        let (encoder, decoder) = (loona_hpack::Encoder::new(), loona_hpack::Decoder::new());
        Self { socket, encoder, decoder, read: Vec::new(), next_stream: 1 }
    }

    /// Calls GetInfo with this authority; the body of the answer and how the call ended.
    async fn get_info(&mut self, authority: &str) -> (Vec<u8>, Outcome) {
        let id = self.next_stream;
        self.next_stream += 2;
        let mut request = get_info(authority);
        request.push((b"x-trace".to_vec(), b"the table is in use from the second call on".to_vec()));
        let block = encode(&mut self.encoder, &request);
        let (first, rest) = block.split_at(block.len() / 2);
        for frame in [
            Frame::new(HEADERS, PADDED | PRIORITY, id, [&[3, 0, 0, 0, 0, 15], first, &[0; 3]].concat()),
            Frame::new(CONTINUATION, END_HEADERS, id, rest),
            Frame::new(DATA, END_STREAM, id, [0; 5]),
        ] {
            self.socket.write_all(&frame.bytes()).await.unwrap();
        }
        self.answer(id).await
    }

    async fn answer(&mut self, id: u32) -> (Vec<u8>, Outcome) {
        let mut body = Vec::new();
        loop {
            let frame = self.next_frame().await;
            let fields = if frame.kind == HEADERS { self.decoder.decode(&frame.payload).unwrap() } else { vec![] };
            match frame.kind {
                _ if frame.stream != id => {}
                RST_STREAM => {
                    let code = u32::from_be_bytes(frame.payload.try_into().unwrap());
                    return (body, Outcome::Reset(code));
                }
                DATA => body.extend(frame.payload),
                _ => {}
            }
            if let Some((_, status)) = fields.iter().find(|(name, _)| name == b"grpc-status") {
                return (body, Outcome::Status(String::from_utf8_lossy(status).into_owned()));
            }
        }
    }

    async fn next_frame(&mut self) -> Frame {
        loop {
            if let Some((frame, rest)) = Frame::split(&self.read) {
                self.read = rest.to_vec();
                return frame;
            }
            assert_ne!(self.socket.read_buf(&mut self.read).await.unwrap(), 0, "the server closed the connection");
        }
    }
}

/// The gRPC message that says [`NAME`] in field 2.
fn plugin_info() -> Vec<u8> {
    let length = u8::try_from(NAME.len()).unwrap();
    [&[0, 0, 0, 0, length + 2, 0x12, length], NAME.as_bytes()].concat()
}

#[tokio::test]
async fn without_the_repair_kubelets_dial_is_reset() {
    let served = Served::start(false);
    let (_, outcome) = served.dial().await.get_info(PATH_AUTHORITY).await;
    assert_eq!(outcome, Outcome::Reset(PROTOCOL_ERROR));
    // The same client with an authority that the http crate takes: nothing else is wrong with it.
    let (body, outcome) = served.dial().await.get_info("localhost").await;
    assert_eq!((body, outcome), (plugin_info(), Outcome::Status("0".to_owned())));
}

#[tokio::test]
async fn with_the_repair_every_call_of_a_connection_is_answered() {
    let served = Served::start(true);
    let mut client = served.dial().await;
    for authority in [PATH_AUTHORITY, PATH_AUTHORITY, "/var/lib/kubelet/plugins_registry/x.sock", "localhost"] {
        let answer = client.get_info(authority).await;
        assert_eq!(answer, (plugin_info(), Outcome::Status("0".to_owned())), "{authority}");
    }
}

#[tokio::test]
async fn garbage_costs_its_own_connection_and_no_other() {
    let served = Served::start(true);
    let mut good = served.dial().await;
    good.get_info(PATH_AUTHORITY).await;
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 100], &stream(&[Frame::new(CONTINUATION, 0, 1, [])])] {
        let mut bad = UnixStream::connect(served.folder.path().join("reg.sock")).await.unwrap();
        bad.write_all(garbage).await.unwrap();
        // Ends, with or without an error of its own, when the server closes it.
        bad.read_to_end(&mut Vec::new()).await.ok();
    }
    drop(UnixStream::connect(served.folder.path().join("reg.sock")).await.unwrap());
    assert_eq!(good.get_info(PATH_AUTHORITY).await.1, Outcome::Status("0".to_owned()));
    assert_eq!(served.dial().await.get_info(PATH_AUTHORITY).await.1, Outcome::Status("0".to_owned()));
}
