//! A private certificate authority, and certificates of servers, generated for one test.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    fs,
    hash::{BuildHasher, Hasher, RandomState},
    path::{Path, PathBuf},
};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use tempfile::TempDir;

/// An authority. Its files are deleted with it.
#[derive(Debug)]
pub struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
    certificate: PathBuf,
}

/// The files of a server, in PEM format.
#[derive(Debug)]
pub struct ServerCertificate {
    /// The certificate of its authority.
    pub authority: PathBuf,
    /// Its own certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl ServerCertificate {
    /// The flags of a process that serves HTTP with it on a free port.
    ///
    /// # Panics
    /// If the path is not UTF-8.
    #[must_use]
    pub fn https_flags(&self) -> [&str; 6] {
        [
            "--http-tls-listen",
            "127.0.0.1:0",
            "--http-tls-cert",
            self.certificate.to_str().expect("a path in UTF-8"),
            "--http-tls-key",
            self.key.to_str().expect("a path in UTF-8"),
        ]
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// Generates an authority.
    #[must_use]
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut params = CertificateParams::default();
        // Unlike the subjects of its certificates: they would count as self-signed.
        let name = format!("authority {}", RandomState::new().build_hasher().finish());
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let own = params.self_signed(&key).expect("a certificate");
        let certificate = write(folder.path(), "authority.pem", &own.pem());
        Self {
            folder,
            issuer: Issuer::new(params, key),
            certificate,
        }
    }

    /// The certificate that clients trust.
    #[must_use]
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// Issues a certificate for these host names and addresses.
    #[must_use]
    pub fn issue(&self, names: &[&str]) -> ServerCertificate {
        let file = names.join("_").replace(':', "-");
        let subject = names.iter().map(ToString::to_string);
        let params = CertificateParams::new(subject.collect::<Vec<_>>()).expect("names");
        let key = KeyPair::generate().expect("a key");
        let own = params.signed_by(&key, &self.issuer).expect("a certificate");
        let folder = self.folder.path();
        ServerCertificate {
            authority: self.certificate.clone(),
            certificate: write(folder, &format!("{file}.pem"), &own.pem()),
            key: write(folder, &format!("{file}.key"), &key.serialize_pem()),
        }
    }
}

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).expect("a writable folder");
    path
}
