//! The dial against a real tonic server: with the repair it registers, without it is refused as a driver without it would be.

use kubelet_api::authority;
use kubelet_api::registration::v1::registration_server::{Registration, RegistrationServer};
use kubelet_api::registration::v1::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::*;
use crate::kubelet::registration::{GET_INFO, NOTIFY};

const SECOND: Duration = Duration::from_secs(1);

struct Driver;

#[tonic::async_trait]
impl Registration for Driver {
    async fn get_info(&self, request: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        assert!(request.metadata().contains_key("grpc-timeout"));
        Ok(Response::new(PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: "gpu.devicetaint.dev".to_owned(),
            endpoint: String::new(),
            supported_versions: vec!["v1.DRAPlugin".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        match request.into_inner() {
            RegistrationStatus { plugin_registered: true, .. } => Ok(Response::new(RegistrationStatusResponse {})),
            refused => Err(Status::failed_precondition(format!("refused: {}", refused.error))),
        }
    }
}

fn listen(folder: &tempfile::TempDir) -> (std::path::PathBuf, UnixListener) {
    let socket = folder.path().join("gpu with space-reg.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    (socket, listener)
}

fn router() -> tonic::transport::server::Router {
    Server::builder().add_service(RegistrationServer::new(Driver))
}

#[tokio::test]
async fn a_repaired_server_is_registered_over_one_connection() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, listener) = listen(&folder);
    let server = tokio::spawn(router().serve_with_incoming(authority::incoming(listener)));
    let mut connection = Connection::open(&socket, SECOND).await.unwrap();
    for _ in 0..3 {
        let info: PluginInfo = connection.unary(GET_INFO, &InfoRequest {}, SECOND).await.unwrap();
        assert_eq!(info.name, "gpu.devicetaint.dev");
    }
    let status = RegistrationStatus { plugin_registered: true, error: String::new() };
    let _: RegistrationStatusResponse = connection.unary(NOTIFY, &status, SECOND).await.unwrap();
    server.abort();
}

#[tokio::test]
async fn a_status_comes_back_with_its_text() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, listener) = listen(&folder);
    let server = tokio::spawn(router().serve_with_incoming(authority::incoming(listener)));
    let mut connection = Connection::open(&socket, SECOND).await.unwrap();
    let status = RegistrationStatus { plugin_registered: false, error: "größer & 100%".to_owned() };
    let error = connection.unary::<RegistrationStatusResponse>(NOTIFY, &status, SECOND).await.unwrap_err();
    assert_eq!(error.to_string(), "gRPC status 9: refused: größer & 100%");
    let unknown = connection.unary::<PluginInfo>("/no.Such/Method", &InfoRequest {}, SECOND).await.unwrap_err();
    assert!(matches!(unknown, DialError::Status { ref code, .. } if code == "12"), "{unknown}");
    server.abort();
}

#[tokio::test]
async fn a_stock_server_answers_protocol_error() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, listener) = listen(&folder);
    let server = tokio::spawn(router().serve_with_incoming(UnixListenerStream::new(listener)));
    let mut connection = Connection::open(&socket, SECOND).await.unwrap();
    let error = connection.unary::<PluginInfo>(GET_INFO, &InfoRequest {}, SECOND).await.unwrap_err();
    assert_eq!(error.to_string(), "stream terminated by RST_STREAM with error code: PROTOCOL_ERROR");
    server.abort();
}

#[tokio::test]
async fn a_server_that_is_silent_or_talks_nonsense_does_not_hold_us() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, listener) = listen(&folder);
    let short = Duration::from_millis(50);
    let mut silent = Connection::open(&socket, SECOND).await.unwrap();
    let error = silent.unary::<PluginInfo>(GET_INFO, &InfoRequest {}, short).await.unwrap_err();
    assert!(matches!(error, DialError::Timeout(_)), "{error}");
    drop(silent);

    let server = tokio::spawn(async move {
        listener.accept().await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        stream
    });
    let mut nonsense = Connection::open(&socket, SECOND).await.unwrap();
    let error = nonsense.unary::<PluginInfo>(GET_INFO, &InfoRequest {}, SECOND).await.unwrap_err();
    assert!(matches!(error, DialError::Io(_)), "{error}");
    server.abort();
}

#[tokio::test]
async fn a_socket_without_a_listener_is_dialled_until_the_time_is_up() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, listener) = listen(&folder);
    drop(listener);
    let error = Connection::open(&socket, Duration::from_millis(60)).await.err().unwrap();
    assert!(matches!(error, DialError::Timeout(_)), "{error}");
    let missing = Connection::open(&folder.path().join("none.sock"), SECOND).await.err().unwrap();
    assert!(matches!(missing, DialError::Io(_)), "{missing}");
}

#[test]
fn the_authority_is_encoded_as_grpc_go_does() {
    assert_eq!(
        encode_authority("/var/lib/kubelet/plugins_registry/gpu.devicetaint.dev-reg.sock"),
        "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fgpu.devicetaint.dev-reg.sock"
    );
    assert_eq!(encode_authority("/a b/ü"), "%2Fa%20b%2F%C3%BC");
}

#[test]
fn percent_codes_are_read_and_the_rest_is_left() {
    assert_eq!(decode_percent("100%25 of%20it %zz %"), "100% of it %zz %");
}
