//! The credentials for S3 and their source. Missing credentials are reported as such, not as an
//! error of the bucket.

use crate::settings::{S3Settings, Secret};
use async_trait::async_trait;
use object_store::CredentialProvider;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, AwsCredentialProvider};
use std::io;
use std::sync::Arc;

#[derive(Clone, Copy, Debug)]
pub(crate) struct CredentialSource {
    pub(crate) name: &'static str,
    /// Advice if the source has no credentials.
    pub(crate) advice: &'static str,
}

const FILES: CredentialSource = CredentialSource {
    name: "access_key_id_file and secret_access_key_file",
    advice: "check both files",
};
const VARIABLES: CredentialSource = CredentialSource {
    name: "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    advice: "check both variables",
};
const WEB_IDENTITY: CredentialSource = CredentialSource {
    name: "STS (AWS_ROLE_ARN, AWS_WEB_IDENTITY_TOKEN_FILE)",
    advice: "check that STS can be reached, the role's trust policy, and the token of the service account",
};
const TASK: CredentialSource = CredentialSource {
    name: "the ECS agent (AWS_CONTAINER_CREDENTIALS_RELATIVE_URI)",
    advice: "check the IAM role of the ECS task",
};
const POD_IDENTITY: CredentialSource = CredentialSource {
    name: "EKS Pod Identity (AWS_CONTAINER_CREDENTIALS_FULL_URI, AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE)",
    advice: "check the association of the service account with a role, and the agent of the node",
};
const INSTANCE: CredentialSource = CredentialSource {
    name: "the instance metadata",
    advice: "no other credentials are configured: give the pod or the machine a role, or set \
        access_key_id_file and secret_access_key_file, or AWS's environment variables",
};

impl CredentialSource {
    /// The first source of credentials that is configured, in the order of `object_store`.
    pub(crate) fn of(settings: &S3Settings, builder: &AmazonS3Builder) -> CredentialSource {
        use AmazonS3ConfigKey as Key;
        let has = |key: Key| builder.get_config_value(&key).is_some();
        if settings.keys.is_some() {
            FILES
        } else if has(Key::AccessKeyId) || has(Key::SecretAccessKey) {
            VARIABLES
        } else if has(Key::WebIdentityTokenFile) && has(Key::RoleArn) {
            WEB_IDENTITY
        } else if has(Key::ContainerCredentialsRelativeUri) {
            TASK
        } else if has(Key::ContainerCredentialsFullUri) && has(Key::ContainerAuthorizationTokenFile)
        {
            POD_IDENTITY
        } else {
            INSTANCE
        }
    }
}

/// There are no credentials, so nothing was sent to S3.
#[derive(Debug, thiserror::Error)]
#[error("no credentials")]
pub(crate) struct NoCredentials(#[source] object_store::Error);

/// Passes on credentials of another provider, and marks its errors so that they differ from errors
/// of S3.
#[derive(Debug)]
pub(crate) struct ToldApart(pub(crate) AwsCredentialProvider);

#[async_trait]
impl CredentialProvider for ToldApart {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let given = self.0.get_credential().await;
        given.map_err(|error| object_store::Error::Unauthenticated {
            path: String::new(),
            source: Box::new(NoCredentials(error)),
        })
    }
}

/// Access key and secret from files, read again for every request.
#[derive(Debug)]
pub(crate) struct KeyFiles {
    pub(crate) key: Secret,
    pub(crate) secret: Secret,
}

#[async_trait]
impl CredentialProvider for KeyFiles {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let failed = |source: io::Error| object_store::Error::Unauthenticated {
            path: String::new(),
            source: source.into(),
        };
        let read = |secret: &Secret| secret.read().map(Option::unwrap_or_default);
        Ok(Arc::new(AwsCredential {
            key_id: read(&self.key).map_err(failed)?,
            secret_key: read(&self.secret).map_err(failed)?,
            token: None,
        }))
    }
}
