//! Links to the live page in alerts.

use std::net::SocketAddr;
use tokengauge_admin::RUNBOOKS;
use tokengauge_config::Admin;
use tokengauge_slo::{AlertNotification, AlertSubject, alert_name};

/// Where the receiver of an alert can open the page.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PageLink {
    /// A URL without a trailing slash.
    Url(String),
    /// A URL that works only after running a command, or only on one host.
    By {
        /// The command and the words between it and the URL.
        before: String,
        /// The URL, without a trailing slash.
        url: String,
        after: String,
    },
    /// No admin address is configured.
    Nowhere,
}

impl PageLink {
    /// Derives the link from the configuration and, in a pod, from the variables of the downward API.
    pub(crate) fn new(admin: &Admin, variable: impl Fn(&str) -> Option<String>) -> PageLink {
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
        let url = format!("{scheme}://{here}");
        if let Some(pod) = first(["K8S_POD_NAME", "POD_NAME"]) {
            let namespace = first(["K8S_NAMESPACE_NAME", "POD_NAMESPACE"])
                .map_or(String::new(), |name| format!(" -n {name}"));
            return PageLink::By {
                before: format!("kubectl port-forward{namespace} pod/{pod} {port}, then "),
                url,
                after: String::new(),
            };
        }
        if ip.is_loopback() || ip.is_unspecified() {
            let system = rustix::system::uname();
            let host = system.nodename().to_string_lossy();
            return PageLink::By {
                before: String::new(),
                url,
                after: format!(" (on {host})"),
            };
        }
        PageLink::Url(format!("{scheme}://{address}"))
    }

    /// Tells how to open a view, given by its path and query.
    fn to(&self, view: &str) -> Option<String> {
        match self {
            PageLink::Url(url) => Some(format!("{url}/{view}")),
            PageLink::By { before, url, after } => Some(format!("{before}{url}/{view}{after}")),
            PageLink::Nowhere => None,
        }
    }

    /// Adds to alerts the view of the page and, unless they have their own, the runbook.
    pub(crate) fn add_to(&self, notices: &mut [AlertNotification]) {
        for notice in notices {
            notice.page = self.to(&notice.view);
            if notice.runbook_url.is_none() {
                let section = runbook(notice.about);
                let path = RUNBOOKS.trim_start_matches('/');
                notice.runbook_url = self.to(&format!("{path}#{section}"));
            }
        }
    }
}

fn runbook(about: AlertSubject) -> String {
    alert_name(about).to_lowercase()
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
        let local = PageLink::new(&admin("[::]:9464"), none);
        let local = local.to("calls?slo=a").expect("an address");
        let begin = "http://127.0.0.1:9464/calls?slo=a (on ";
        assert!(local.starts_with(begin), "{local}");
        let pod = |name: &str| match name {
            "K8S_POD_NAME" => Some("agent-7".to_owned()),
            "POD_NAMESPACE" => Some("ml".to_owned()),
            _ => None,
        };
        let how = "kubectl port-forward -n ml pod/agent-7 15465, then http://127.0.0.1:15465/calls";
        let in_pod = PageLink::new(&admin("127.0.0.1:15465"), pod);
        assert_eq!(in_pod.to("calls").as_deref(), Some(how));
        assert_eq!(PageLink::new(&Admin::default(), pod), PageLink::Nowhere);
    }

    #[test]
    fn every_alert_has_a_runbook_with_mitigations_and_what_to_tell_others() {
        let text = include_str!("../../../docs/runbooks.md");
        for about in [
            AlertSubject::Objective,
            AlertSubject::Budget,
            AlertSubject::Runaway,
        ] {
            let name = alert_name(about);
            let after = text.split(&format!("\n## {name}\n")).nth(1);
            let section = after.and_then(|after| after.split("\n## ").next());
            let section = section.expect(name);
            for part in [
                "1. ",
                "curl -s",
                "**Mitigations**\n\n| ",
                "**What to tell others**",
            ] {
                assert!(section.contains(part), "{name}: {part}");
            }
        }
    }
}
