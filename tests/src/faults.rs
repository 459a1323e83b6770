//! The fault layer of the small cluster's API server: the next calls of a kind go wrong.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::http;
use crate::lab::Lab;

/// How a matching call goes wrong.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// It is answered with this status and changes nothing.
    Status(u16),
    /// The connection is cut without an answer.
    Cut,
    /// It is answered after this many milliseconds.
    Delay(u64),
}

/// Lets the next `times` calls of a program (by the start of its user agent), with a method and a path with `*`, go wrong.
///
/// # Errors
/// When the server does not take the fault.
pub async fn inject(lab: &Lab, agent: &str, method: &str, path: &str, times: u32, answer: Answer) -> Result<String> {
    let answer = match answer {
        Answer::Status(status) => json!({"status": status}),
        Answer::Cut => json!({"cut": true}),
        Answer::Delay(milliseconds) => json!({"delayMs": milliseconds}),
    };
    let matching = json!({"method": method, "path": path, "userAgent": format!("{agent}*")});
    let fault = json!({"match": matching, "times": times, "answer": answer});
    let (status, body) = http::request(lab.server_address()?, "POST", "/sim/faults", &fault.to_string()).await?;
    ensure!((200..300).contains(&status), "the fault layer answered {status}: {body}");
    let made: Value = serde_json::from_str(&body)?;
    Ok(made["id"].as_str().map_or_else(|| made["id"].to_string(), str::to_owned))
}

/// Lets the server store the taints of devices, or leave them out, from now on; the watches of agents break, as with a restart that another setting takes.
///
/// # Errors
/// When the server does not.
pub async fn device_taints(lab: &Lab, switch: &str) -> Result<()> {
    let cut = json!({"match": {"userAgent": "gpu-driver*", "open": true}, "answer": {"cut": true}}).to_string();
    for (path, body) in [(format!("/sim/device-taints/{switch}"), ""), ("/sim/faults".to_owned(), &cut)] {
        let (status, body) = http::request(lab.server_address()?, "POST", &path, body).await?;
        ensure!((200..300).contains(&status), "{path} answered {status}: {body}");
    }
    Ok(())
}

/// How often all faults together were hit so far.
///
/// # Errors
/// When the server does not say.
pub async fn hits(lab: &Lab) -> Result<u64> {
    let (status, body) = http::get(lab.server_address()?, "/sim/faults").await?;
    ensure!(status == 200, "the fault layer answered {status}: {body}");
    let listed: Value = serde_json::from_str(&body)?;
    let faults = listed.as_array().or_else(|| listed["faults"].as_array()).cloned().unwrap_or_default();
    Ok(faults.iter().filter_map(|fault| fault["hits"].as_u64()).sum())
}

/// Takes all faults away.
///
/// # Errors
/// When the server does not.
pub async fn clear(lab: &Lab) -> Result<()> {
    let (status, body) = http::request(lab.server_address()?, "DELETE", "/sim/faults", "").await?;
    ensure!((200..300).contains(&status), "the fault layer answered {status}: {body}");
    Ok(())
}
