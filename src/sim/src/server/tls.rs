//! A certificate authority made at the start, and a certificate of it for the loopback addresses.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A key or a certificate could not be made.
    #[error("cannot make a certificate for the server: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The TLS library refused them.
    #[error("cannot set up TLS with the certificate just made: {0}")]
    Setup(#[from] tokio_rustls::rustls::Error),
}

/// The server's side of TLS, and the certificate that clients trust, as PEM.
pub(crate) struct Tls {
    pub(crate) acceptor: TlsAcceptor,
    pub(crate) authority: String,
}

/// Makes both.
pub(crate) fn make() -> Result<Tls, TlsError> {
    let mut authority = CertificateParams::new(Vec::<String>::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    authority.distinguished_name.push(DnType::CommonName, "sim");
    let authority_key = KeyPair::generate()?;
    let certificate = authority.self_signed(&authority_key)?;
    let issuer = Issuer::new(authority, authority_key);

    let names = ["127.0.0.1", "::1", "localhost", "kubernetes.default.svc"].map(str::to_owned);
    let key = KeyPair::generate()?;
    let server = CertificateParams::new(names)?.signed_by(&key, &issuer)?;
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![server.der().clone()], private)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Tls { acceptor: TlsAcceptor::from(Arc::new(config)), authority: certificate.pem() })
}
