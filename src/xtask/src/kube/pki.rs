//! Keys and certificates of a cluster: one authority, a certificate for each that serves, one for the API server as kubelet's client, and the key that
//! signs ServiceAccount tokens.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

use super::files::write_private;
use super::layout::RunDir;

/// Makes all of them and writes them to the run folder's `pki`.
///
/// # Errors
/// When one cannot be made or written.
pub(super) fn write(run: &RunDir, node: Ipv4Addr) -> Result<()> {
    let mut authority = named("device-taint-manager test cluster", &[])?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().context("make the authority's key")?;
    let certificate = authority.self_signed(&key).context("sign the authority's certificate")?;
    write_private(&run.path("pki/ca.crt"), certificate.pem().as_bytes())?;
    let issuer = Issuer::new(authority, key);

    let server = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
    let node = node.to_string();
    issue(run, &issuer, "apiserver", named("kube-apiserver", &server)?, ExtendedKeyUsagePurpose::ServerAuth)?;
    issue(run, &issuer, "kubelet", named("kubelet", &[&node])?, ExtendedKeyUsagePurpose::ServerAuth)?;
    issue(run, &issuer, "kubelet-client", named("kube-apiserver", &[])?, ExtendedKeyUsagePurpose::ClientAuth)?;

    let accounts = KeyPair::generate().context("make the key of ServiceAccounts")?;
    write_private(&run.path("pki/accounts.key"), accounts.serialize_pem().as_bytes())?;
    write_private(&run.path("pki/accounts.pub"), accounts.public_key_pem().as_bytes())
}

fn named(name: &str, hosts: &[&str]) -> Result<CertificateParams> {
    let hosts: Vec<_> = hosts.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(hosts).with_context(|| format!("describe the certificate of {name}"))?;
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

fn issue(
    run: &RunDir,
    issuer: &Issuer<'_, KeyPair>,
    file: &str,
    mut params: CertificateParams,
    usage: ExtendedKeyUsagePurpose,
) -> Result<()> {
    params.extended_key_usages = vec![usage];
    let key = KeyPair::generate().with_context(|| format!("make the key of {file}"))?;
    let certificate = params.signed_by(&key, issuer).with_context(|| format!("sign the certificate of {file}"))?;
    write_private(&run.path(&format!("pki/{file}.crt")), certificate.pem().as_bytes())?;
    write_private(&run.path(&format!("pki/{file}.key")), key.serialize_pem().as_bytes())
}
