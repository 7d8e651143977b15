//! Creates certificates as files.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A certificate authority, with its files in one folder.
pub struct Authority {
    pub folder: TempDir,
    pub file: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Default for Authority {
    fn default() -> Authority {
        Authority::new()
    }
}

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let folder = TempDir::new().expect("a folder");
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, certificate.pem()).expect("written");
        Authority {
            folder,
            file,
            issuer: Issuer::new(params, key),
        }
    }

    /// Signs a certificate for a DNS name or address. Writes or overwrites `<file>.pem` and
    /// `<file>.key`.
    pub fn issue(&self, file: &str, name: &str) -> (PathBuf, PathBuf) {
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        self.sign(file, params)
    }

    pub fn issue_expired(&self, file: &str, name: &str) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        self.sign(file, params)
    }

    fn sign(&self, file: &str, params: CertificateParams) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let path = |extension: &str| self.folder.path().join(format!("{file}.{extension}"));
        replace(&path("pem"), &certificate.pem());
        replace(&path("key"), &key.serialize_pem());
        (path("pem"), path("key"))
    }
}

/// Replaces a file in one step, as tools that renew certificates do.
pub fn replace(file: &Path, content: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, content).expect("written");
    std::fs::rename(&new, file).expect("renamed");
}
