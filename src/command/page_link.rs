//! Where alerts say that the live page is.

use crate::admin::RUNBOOKS;
use crate::config::Admin;
use crate::slo::{AlertNotification, AlertSubject};
use std::net::SocketAddr;

/// The page, as whoever gets an alert opens it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PageLink {
    /// At this URL, which has no slash at its end.
    Url(String),
    /// By this command, or on this host.
    By(String),
    /// There is no address for operators.
    Nowhere,
}

impl PageLink {
    /// By the configuration and, in a pod, the variables of the downward API.
    pub(super) fn new(admin: &Admin, variable: impl Fn(&str) -> Option<String>) -> PageLink {
        let Some(address) = admin.address else {
            return PageLink::Nowhere;
        };
        if let Some(url) = &admin.url {
            return PageLink::Url(url.clone());
        }
        let first = |names: [&str; 2]| names.into_iter().find_map(&variable);
        let scheme = if admin.tls.is_some() { "https" } else { "http" };
        let (ip, port) = (address.ip(), address.port());
        let here = SocketAddr::from(([127, 0, 0, 1], port));
        if let Some(pod) = first(["K8S_POD_NAME", "POD_NAME"]) {
            let namespace = first(["K8S_NAMESPACE_NAME", "POD_NAMESPACE"]);
            let namespace = namespace.map_or(String::new(), |name| format!(" -n {name}"));
            return PageLink::By(format!(
                "kubectl port-forward{namespace} pod/{pod} {port}, then {scheme}://{here}/"
            ));
        }
        if ip.is_loopback() || ip.is_unspecified() {
            let system = rustix::system::uname();
            let host = system.nodename().to_string_lossy();
            return PageLink::By(format!("{scheme}://{here}/ on {host}"));
        }
        PageLink::Url(format!("{scheme}://{address}"))
    }

    /// Adds the page and, where they have none of their own, the runbook to alerts.
    pub(super) fn add_to(&self, notices: &mut [AlertNotification]) {
        for notice in notices {
            notice.page = match self {
                PageLink::Url(url) => Some(format!("{url}/")),
                PageLink::By(how) => Some(how.clone()),
                PageLink::Nowhere => None,
            };
            if let (PageLink::Url(url), None) = (self, &notice.runbook_url) {
                notice.runbook_url = Some(format!("{url}{RUNBOOKS}#{}", runbook(notice.about)));
            }
        }
    }
}

/// The section of the runbooks.
fn runbook(about: AlertSubject) -> &'static str {
    match about {
        AlertSubject::Objective => "sloerrorbudgetburn",
        AlertSubject::Budget => "tokengaugebudgetspent",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admin(address: &str) -> Admin {
        Admin {
            address: Some(address.parse().expect("an address")),
            ..Admin::default()
        }
    }

    #[test]
    fn the_page_is_named_as_one_can_open_it() {
        let none = |_: &str| None;
        let mut named = admin("127.0.0.1:9464");
        named.url = Some("https://gauge.example.com/a".to_owned());
        let url = PageLink::new(&named, |_| Some("p".to_owned()));
        assert_eq!(url, PageLink::Url("https://gauge.example.com/a".to_owned()));
        let remote = PageLink::new(&admin("10.0.0.1:9464"), none);
        assert_eq!(remote, PageLink::Url("http://10.0.0.1:9464".to_owned()));
        let PageLink::By(local) = PageLink::new(&admin("[::]:9464"), none) else {
            panic!("a URL that leads nowhere from elsewhere");
        };
        assert!(local.starts_with("http://127.0.0.1:9464/ on "), "{local}");
        let pod = |name: &str| match name {
            "K8S_POD_NAME" => Some("agent-7".to_owned()),
            "POD_NAMESPACE" => Some("ml".to_owned()),
            _ => None,
        };
        let how = "kubectl port-forward -n ml pod/agent-7 15465, then http://127.0.0.1:15465/";
        let in_pod = PageLink::new(&admin("127.0.0.1:15465"), pod);
        assert_eq!(in_pod, PageLink::By(how.to_owned()));
        assert_eq!(PageLink::new(&Admin::default(), pod), PageLink::Nowhere);
    }

    #[test]
    fn every_alert_has_a_section_of_the_runbooks() {
        let text = include_str!("../../docs/runbooks.md").to_lowercase();
        for about in [AlertSubject::Objective, AlertSubject::Budget] {
            assert!(text.contains(&format!("\n## {}\n", runbook(about))));
        }
    }
}
