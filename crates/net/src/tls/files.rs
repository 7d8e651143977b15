//! PEM files. No message may quote a file's content, because it may be a private key.

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Invalid {
    #[error("{}: cannot be read: {source}", .file.display())]
    Unreadable { file: PathBuf, source: io::Error },
    /// The file does not contain the expected PEM sections.
    #[error("{}: {problem}", .file.display())]
    Content {
        file: PathBuf,
        problem: &'static str,
    },
    /// The certificate and the key do not belong together.
    #[error("{} and {}: {problem}", .certificate.display(), .key.display())]
    Pair {
        certificate: PathBuf,
        key: PathBuf,
        problem: String,
    },
    /// The certificates cannot be used as authorities.
    #[error("{}: cannot be trusted as authorities: {problem}", .file.display())]
    Authority { file: PathBuf, problem: String },
    #[error(
        "`{name}` is neither a DNS name nor an IP address, so no certificate can be checked against it"
    )]
    ServerName { name: String },
    #[error(
        "this machine has no trusted root certificates; install CA certificates or set `tls.ca`"
    )]
    NoSystemRoots,
}

impl Invalid {
    pub(super) fn pair(certificate: &Path, key: &Path, error: &rustls::Error) -> Invalid {
        let problem = match error {
            rustls::Error::InconsistentKeys(_) => {
                "the key does not belong to the certificate".to_owned()
            }
            other => other.to_string(),
        };
        Invalid::Pair {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            problem,
        }
    }

    pub(super) fn authority(file: &Path, error: &dyn std::error::Error) -> Invalid {
        Invalid::Authority {
            file: file.to_owned(),
            problem: error.to_string(),
        }
    }

    fn pem(file: &Path, error: pem::Error, absent: &'static str) -> Invalid {
        let problem = match error {
            pem::Error::Io(source) => {
                return Invalid::Unreadable {
                    file: file.to_owned(),
                    source,
                };
            }
            pem::Error::NoItemsFound => absent,
            pem::Error::MissingSectionEnd { .. } => {
                "a PEM section has no END line; the file may be incomplete"
            }
            pem::Error::IllegalSectionStart { .. } => "a BEGIN line is malformed",
            pem::Error::Base64Decode(_) => "a PEM section is not base64",
            _ => "not PEM",
        };
        Invalid::Content {
            file: file.to_owned(),
            problem,
        }
    }
}

const NO_CERTIFICATE: &str =
    "contains no certificate; a PEM file with `-----BEGIN CERTIFICATE-----` is needed";
const NO_KEY: &str = "contains no private key; a PEM file with `-----BEGIN PRIVATE KEY-----` (PKCS#8, PKCS#1 or SEC1) without a \
                      passphrase is needed";

/// The certificates of a file, in order. Never empty.
pub(super) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Invalid> {
    let invalid = |error| Invalid::pem(file, error, NO_CERTIFICATE);
    let sections = CertificateDer::pem_file_iter(file).map_err(invalid)?;
    let certificates = sections.collect::<Result<Vec<_>, _>>().map_err(invalid)?;
    if certificates.is_empty() {
        Err(invalid(pem::Error::NoItemsFound))
    } else {
        Ok(certificates)
    }
}

pub(super) fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, Invalid> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| Invalid::pem(file, error, NO_KEY))
}

/// The certificates of a file as trusted authorities.
pub(super) fn roots(file: &Path) -> Result<RootCertStore, Invalid> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots
            .add(certificate)
            .map_err(|error| Invalid::authority(file, &error))?;
    }
    Ok(roots)
}
