//! `tokengauge inject` and `tokengauge inject serve`: add sidecars to manifests and to new pods.

use super::error::CommandError;
use crate::Error;
use crate::cli::{InjectArgs, InjectServeArgs, InjectSettings};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use tokengauge_config::ServerTls;
use tokengauge_inject::manifest::inject_all;
use tokengauge_inject::review::{Injector, router};
use tokengauge_inject::{InjectBy, Settings};
use tokengauge_net::tls::Acceptor;
use tokengauge_process::{SystemError, output};
use tokengauge_proxy::Shutdown;

const OPT_OUT: &str = "To leave an object unchanged, set the annotation tokengauge.dev/inject: \"false\"; to leave all \
    such objects unchanged, use --lenient";

pub(super) fn inject(args: &InjectArgs) -> Result<(), Error> {
    let settings = settings(&args.settings)?;
    let by = if args.annotated {
        InjectBy::Annotation
    } else {
        InjectBy::Namespace
    };
    let mut text = String::new();
    let (mut refused, mut unknown) = (0, 0);
    for (number, file) in args.files.iter().enumerate() {
        let origin = file.display();
        let manifests =
            inject_all(&read(file)?, by, &settings).map_err(CommandError::file(file))?;
        if number > 0 && !manifests.text.starts_with("---") {
            text.push_str("---\n");
        }
        text.push_str(&manifests.text);
        if !text.ends_with('\n') {
            text.push('\n');
        }
        for warning in &manifests.warnings {
            output::note(&format!("{origin}: {warning}"));
        }
        for reason in &manifests.refused {
            output::note(&format!("{origin}: not injected: {reason}"));
        }
        for reason in &manifests.unknown {
            output::note(&format!("{origin}: left unchanged: {reason}"));
        }
        output::note(&format!("{origin}: {} injected", manifests.injected));
        refused += manifests.refused.len();
        unknown += manifests.unknown.len();
    }
    if refused > 0 && !args.lenient {
        return Err(CommandError::NotInjected(refused, OPT_OUT).into());
    }
    output::print(&text)?;
    if unknown > 0 && !args.lenient {
        return Err(Error::LeftOut(format!(
            "{unknown} objects were left unchanged, without a sidecar; the others were processed. The webhook can inject their pods. \
             {OPT_OUT}"
        )));
    }
    Ok(())
}

fn read(file: &Path) -> Result<String, SystemError> {
    let failed = SystemError::read(file);
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(failed)?;
        return Ok(text);
    }
    std::fs::read_to_string(file).map_err(failed)
}

fn settings(args: &InjectSettings) -> Result<Settings, Error> {
    let mut settings = match &args.config {
        Some(file) => {
            Settings::load(file).map_err(|error| Error::Configuration(error.to_string()))?
        }
        None => Settings::default(),
    };
    if let Some(image) = &args.image {
        settings.image.clone_from(image);
    }
    if let Some(native) = args.native_sidecar {
        settings.native_sidecar = native;
    }
    Ok(settings)
}

pub(super) async fn serve(args: InjectServeArgs) -> Result<(), Error> {
    let settings = settings(&args.settings)?;
    let tls = ServerTls {
        certificate: args.certificate,
        key: args.key,
        client_ca: None,
    };
    let acceptor = Acceptor::new(&tls).map_err(|error| Error::Configuration(error.to_string()))?;
    let (listener, address) = super::listen(args.listen)?;
    output::note(&format!("listening on {address}"));
    let shutdown = Shutdown::new();
    tokengauge_process::signals::watch(shutdown.clone())?;
    let service = router(Injector::new(settings));
    let acceptor = Some(Arc::new(acceptor));
    let ended = async move {
        shutdown.drain_started().await;
    };
    tokengauge_admin::serve_router(listener, service, acceptor, Arc::default(), ended).await;
    Ok(())
}
