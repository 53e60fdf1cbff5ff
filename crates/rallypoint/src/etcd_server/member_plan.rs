//! The plan of one member of a job's etcd cluster: its name, its addresses and its command line.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use super::member::MemberSpec;
use super::output::EtcdOutput;
use crate::client::{ClientOptions, Pem, TlsOptions};
use crate::config::{ConfigError, Endpoint};

/// One member of the etcd cluster of a job, each of whose members is a child of the launcher on its host.
///
/// All launchers make the same names, addresses and token of the same command line, so the members find each other.
#[derive(Debug, Clone)]
pub(crate) struct MemberPlan {
    /// The addresses of all members for clients.
    pub(crate) endpoints: Vec<Endpoint>,
    /// The index of the member of this host.
    pub(crate) own: usize,
    /// The address of this host that the member listens on.
    pub(crate) listen: IpAddr,
    /// The run that the cluster belongs to.
    pub(crate) run_id: String,
    /// The certificates of the clients, which the member shows and requires too.
    pub(crate) tls: Option<TlsOptions>,
}

/// How a member without data begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bootstrap {
    /// As one of the first members of a new cluster.
    New,
    /// As a new member of a cluster that has been told of it.
    Existing,
}

/// How far a member's port for other members is from its port for clients.
const PEER_PORT_OFFSET: u16 = 1;

/// The sizes that a cluster may have: an even number survives no more losses than the odd number below it.
const SIZES: [usize; 4] = [3, 5, 7, 9];

/// Checks the hosts that are to run the members.
pub(crate) fn check_hosts(field: &str, endpoints: &[Endpoint]) -> Result<(), ConfigError> {
    let text = endpoints.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let refused = |fix: String| Err(ConfigError::invalid(field, text.clone(), fix));
    let count = endpoints.len();
    if !SIZES.contains(&count) {
        return refused(format!(
            "--engine etcd runs one member of an etcd cluster on each host that is named, and these are {count}; name \
             three hosts, or 5, 7 or 9: more than half of them must live"
        ));
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let is_same = |other: &&Endpoint| other.host.eq_ignore_ascii_case(&endpoint.host);
        if let Some(twice) = endpoints[..index].iter().find(is_same) {
            let host = &twice.host;
            return refused(format!("{host} is there twice; each member needs a host of its own"));
        }
        if endpoint.port > u16::MAX - PEER_PORT_OFFSET {
            return refused(format!(
                "the members use port {} and the next one; name one below {}",
                endpoint.port,
                u16::MAX
            ));
        }
    }
    Ok(())
}

impl MemberPlan {
    /// The address that the member listens on for clients.
    pub(crate) fn client_address(&self) -> SocketAddr {
        SocketAddr::new(self.listen, self.endpoints[self.own].port)
    }

    /// The address that the member listens on for other members.
    pub(super) fn peer_address(&self) -> SocketAddr {
        SocketAddr::new(self.listen, self.endpoints[self.own].port + PEER_PORT_OFFSET)
    }

    /// The URL at which the other members reach the member of this host.
    pub(super) fn own_peer_url(&self) -> String {
        self.peer_url(&self.endpoints[self.own])
    }

    /// The name of the member of this host, which no member of another run has.
    pub(super) fn own_name(&self) -> String {
        self.name(self.own)
    }

    /// The options of a client of the members that `whom` selects by their index.
    pub(super) fn client(&self, whom: impl Fn(usize) -> bool) -> ClientOptions {
        let chosen = self.endpoints.iter().enumerate().filter(|(index, _)| whom(*index));
        let options = ClientOptions::new(chosen.map(|(_, endpoint)| endpoint.to_string()));
        ClientOptions { tls: self.tls.clone(), ..options }
    }

    /// How the member is started with this data directory.
    pub(super) fn spec(&self, binary: &Path, data: PathBuf, bootstrap: Bootstrap) -> MemberSpec {
        let member = |(index, host): (usize, &Endpoint)| {
            format!("{}={}", self.name(index), self.peer_url(host))
        };
        let members: Vec<String> = self.endpoints.iter().enumerate().map(member).collect();
        let state = match bootstrap {
            Bootstrap::New => "new",
            Bootstrap::Existing => "existing",
        };
        let scheme = self.scheme();
        MemberSpec {
            binary: binary.to_owned(),
            name: self.own_name(),
            endpoint: self.client_address(),
            peer: self.peer_address(),
            client: self.client(|index| index == self.own),
            data,
            flags: vec![
                ("--listen-client-urls", format!("{scheme}://{}", self.client_address())),
                ("--advertise-client-urls", format!("{scheme}://{}", self.endpoints[self.own])),
                ("--listen-peer-urls", format!("{scheme}://{}", self.peer_address())),
                ("--initial-advertise-peer-urls", self.own_peer_url()),
                ("--initial-cluster", members.join(",")),
                ("--initial-cluster-token", self.run_id.clone()),
                ("--initial-cluster-state", state.to_owned()),
            ],
            args: self.tls.as_ref().map(certificates).unwrap_or_default(),
            output: EtcdOutput::Discard,
        }
    }

    fn name(&self, index: usize) -> String {
        // etcd separates the members of a cluster by these.
        let run = self.run_id.replace('%', "%25").replace(',', "%2C").replace('=', "%3D");
        format!("rallypoint-{run}-{index}")
    }

    fn peer_url(&self, endpoint: &Endpoint) -> String {
        format!("{}://{}:{}", self.scheme(), endpoint.host, endpoint.port + PEER_PORT_OFFSET)
    }

    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

/// The arguments for TLS. An etcd that starts empty has no users, so certificates are what keeps strangers out: each
/// client and each member must show one.
fn certificates(tls: &TlsOptions) -> Vec<OsString> {
    let mut arguments = Vec::new();
    let mut add = |flag: &str, pem: &Pem| {
        if let Pem::File(path) = pem {
            let mut argument = OsString::from(flag);
            argument.push(path);
            arguments.push(argument);
        }
    };
    add("--trusted-ca-file=", &tls.ca);
    add("--peer-trusted-ca-file=", &tls.ca);
    if let Some((cert, key)) = &tls.identity {
        for (flag, pem) in [
            ("--cert-file=", cert),
            ("--peer-cert-file=", cert),
            ("--key-file=", key),
            ("--peer-key-file=", key),
        ] {
            add(flag, pem);
        }
    }
    arguments
        .extend(["--client-cert-auth=true", "--peer-client-cert-auth=true"].map(OsString::from));
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(run_id: &str) -> MemberPlan {
        MemberPlan {
            endpoints: Endpoint::parse_all("a,b:7000,[fd00::3]", 29400).unwrap(),
            own: 1,
            listen: "10.0.0.2".parse().unwrap(),
            run_id: run_id.to_owned(),
            tls: None,
        }
    }

    fn flag(spec: &MemberSpec, name: &str) -> String {
        spec.flags.iter().find(|(flag, _)| *flag == name).unwrap().1.clone()
    }

    #[test]
    fn all_members_have_the_same_cluster_and_each_has_its_own_addresses() {
        let (first, mut third) = (plan("job"), plan("job"));
        (third.own, third.listen) = (2, "fd00::3".parse().unwrap());
        let spec = |plan: &MemberPlan| plan.spec("etcd".as_ref(), "data".into(), Bootstrap::New);
        let (first, third) = (spec(&first), spec(&third));
        for name in ["--initial-cluster", "--initial-cluster-token", "--initial-cluster-state"] {
            assert_eq!(flag(&first, name), flag(&third, name));
        }
        assert_eq!(
            flag(&first, "--initial-cluster"),
            "rallypoint-job-0=http://a:29401,rallypoint-job-1=http://b:7001,rallypoint-job-2=http://[fd00::3]:29401"
        );
        assert_eq!(flag(&first, "--listen-client-urls"), "http://10.0.0.2:7000");
        assert_eq!(flag(&first, "--advertise-client-urls"), "http://b:7000");
        assert_eq!(flag(&first, "--listen-peer-urls"), "http://10.0.0.2:7001");
        assert_eq!(flag(&third, "--listen-peer-urls"), "http://[fd00::3]:29401");
        assert_eq!(third.name, "rallypoint-job-2");
    }

    /// etcd would take them for the end of a name or of a member.
    #[test]
    fn a_run_id_with_commas_and_equal_signs_is_one_name() {
        let spec = plan("a,b=c%").spec("etcd".as_ref(), "data".into(), Bootstrap::Existing);
        assert_eq!(spec.name, "rallypoint-a%2Cb%3Dc%25-1");
        assert_eq!(flag(&spec, "--initial-cluster").matches(['=', ',']).count(), 5);
        assert_eq!(flag(&spec, "--initial-cluster-token"), "a,b=c%");
    }

    #[test]
    fn hosts_that_cannot_be_a_cluster_are_refused_by_name() {
        for (text, words) in [
            ("a", "these are 1; name three hosts"),
            ("a,b", "these are 2"),
            ("a,b,c,d", "these are 4"),
            ("a,b,A:7000", "a is there twice"),
            ("a,b,c:65535", "port 65535 and the next one"),
        ] {
            let endpoints = Endpoint::parse_all(text, 29400).unwrap();
            let error = check_hosts("--rdzv-endpoint", &endpoints).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("--rdzv-endpoint"), "{error}");
        }
        for text in ["a,b,c", "a,b,c,d,e"] {
            check_hosts("", &Endpoint::parse_all(text, 29400).unwrap()).unwrap();
        }
    }
}
