//! Plain HTTP/1.1 to a program's own port: `/metrics`, `/readyz`, the fault layer. Enough for loopback, and no more.

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends one request and gives status and body.
///
/// # Errors
/// When nothing listens there, or the answer is no HTTP.
pub async fn request(address: &str, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await.with_context(|| format!("nothing listens at {address}"))?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    parse(&String::from_utf8_lossy(&answer))
}

/// Gets a path and gives its body, whatever the status.
///
/// # Errors
/// As [`request`].
pub async fn get(address: &str, path: &str) -> Result<(u16, String)> {
    request(address, "GET", path, "").await
}

/// The value of a metric: the sum over all series of that name whose line contains `label`.
///
/// # Errors
/// When the metrics cannot be read.
pub async fn metric(address: &str, name: &str, label: &str) -> Result<f64> {
    let (status, body) = get(address, "/metrics").await?;
    if status != 200 {
        bail!("{address}/metrics answered {status}");
    }
    let lines = body.lines().filter(|line| line.starts_with(name) && line.contains(label));
    Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
}

fn parse(answer: &str) -> Result<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer without an end of its head")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).context("an answer without a status")?;
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    Ok((status, if chunked { unchunk(body) } else { body.to_owned() }))
}

fn unchunk(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let Ok(size) = usize::from_str_radix(size.trim(), 16) else { break };
        let (Some(chunk), Some(after)) = (rest.get(..size), rest.get(size..)) else { break };
        whole.push_str(chunk);
        body = after.trim_start_matches("\r\n");
    }
    whole
}
