//! Where the root listens, and who may join.

use std::fmt;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;

use super::doors::Doors;
use super::leaf::Route;
use super::secret::{SECRET_MAX, Secret};
use super::{leaf, root};
use crate::group::{Group, JoinError, Joined, Membership, Proposal};
use crate::stop::Until;

/// Pause before a port that is in use is tried again: a run before this one may still be closing.
const PORT_BUSY: Duration = Duration::from_millis(100);

/// A group of processes in a star around the root: each of the others holds one connection to it.
///
/// Needs nothing but the standard library. The root has one thread for all connections, each of the
/// others one for its own. A rank whose connection breaks makes it anew, and a rank that was
/// restarted takes its place again. The root needs an open file for every other rank.
///
/// # Secret
///
/// Every connection begins with a secret that the ranks share, so that no stranger joins, whether
/// another job on the same port or somebody who scans it. It is compared in constant time, and
/// nothing of a connection is parsed before. It travels in clear: on a network where others can
/// listen, it is no protection.
///
/// # Environment
///
/// | variable | meaning |
/// |---|---|
/// | `RANK`, `WORLD_SIZE` | the own global rank and the size of the job |
/// | `MASTER_ADDR` | the host of global rank 0, where the root listens |
/// | `MASTER_PORT` | the launcher's own port; the next one is ours unless the following is set |
/// | `DEEPEP_DIAGNOSE_TCP_ADDR` | host of the root, in place of `MASTER_ADDR` |
/// | `DEEPEP_DIAGNOSE_TCP_PORT` | port of the root |
/// | `DEEPEP_DIAGNOSE_TCP_BIND` | address that the root binds; by default the root's host where it is given as an address of this machine, otherwise all addresses |
/// | `DEEPEP_DIAGNOSE_SECRET` | the secret, 1 to 256 bytes |
/// | `TORCHELASTIC_RUN_ID` | the secret where none is set: the run id of torchrun's `--rdzv-id` |
///
/// `torchrun` sets all that is needed. Give `--rdzv-id` a value that others cannot guess: its
/// default is the word `none`.
///
/// ```
/// use deepxtrace_collect::{Group, TcpGroup};
///
/// let torchrun = |name: &str| match name {
///     "RANK" => Some("3".to_owned()),
///     "WORLD_SIZE" => Some("8".to_owned()),
///     "MASTER_ADDR" => Some("node-0".to_owned()),
///     "MASTER_PORT" => Some("29500".to_owned()),
///     "TORCHELASTIC_RUN_ID" => Some("b4d0c5".to_owned()),
///     _ => None,
/// };
/// let group = TcpGroup::from_vars(torchrun)?;
/// assert_eq!(group.membership().rank(), 3);
/// assert_eq!(group.place(), "node-0:29501");
/// # Ok::<(), deepxtrace_collect::JoinError>(())
/// ```
pub struct TcpGroup {
    membership: Membership,
    route: Route,
    bind: Option<IpAddr>,
    listener: Option<TcpListener>,
}

impl fmt::Debug for TcpGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the secret.
        f.debug_struct("TcpGroup")
            .field("membership", &self.membership)
            .field("root", &self.place())
            .field("bind", &self.bind)
            .finish_non_exhaustive()
    }
}

const TEXT: &str = "it must be set to text that all ranks of the job share, 1 to 256 bytes";

impl TcpGroup {
    /// The rank of `membership` in a group whose root is at `host` and `port`.
    ///
    /// # Errors
    ///
    /// `secret` is empty or longer than 256 bytes.
    pub fn new(
        membership: Membership,
        host: impl Into<String>,
        port: u16,
        secret: &str,
    ) -> Result<Self, JoinError> {
        let secret = Secret::new(secret).ok_or_else(|| JoinError::Setting {
            variable: "DEEPEP_DIAGNOSE_SECRET",
            value: if secret.is_empty() { "" } else { "(hidden)" }.to_owned(),
            allowed: TEXT,
        })?;
        debug_assert_eq!(SECRET_MAX, 256, "the texts say so");
        let route = Route { host: host.into(), port, secret };
        Ok(Self { membership, route, bind: None, listener: None })
    }

    /// The whole job, as a launcher such as `torchrun` describes it in the environment.
    ///
    /// # Errors
    ///
    /// A variable is missing or wrong; it is named with its value and what is allowed.
    pub fn from_env() -> Result<Self, JoinError> {
        Self::from_vars(|name| std::env::var(name).ok())
    }

    /// As [`from_env`](Self::from_env), with variables from elsewhere.
    ///
    /// # Errors
    ///
    /// As [`from_env`](Self::from_env).
    pub fn from_vars(var: impl Fn(&str) -> Option<String>) -> Result<Self, JoinError> {
        let rank = number(&var, "RANK", "a rank below WORLD_SIZE")?;
        let size = number(&var, "WORLD_SIZE", "the number of ranks, 1 to 4096")?;
        let world = Membership::world(rank, size).map_err(|_| JoinError::Setting {
            variable: "RANK",
            value: format!("{rank} with WORLD_SIZE={size}"),
            allowed: "WORLD_SIZE must be 1 to 4096 and RANK below it",
        })?;
        Self::subgroup_from_vars(world, var)
    }

    /// A subgroup of the job, reached as the environment says. Where its root is not on
    /// `MASTER_ADDR`, `DEEPEP_DIAGNOSE_TCP_ADDR` must name the root's host; groups whose roots share
    /// a host need ports of their own.
    ///
    /// # Errors
    ///
    /// As [`from_env`](Self::from_env).
    pub fn subgroup_from_vars(
        membership: Membership,
        var: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, JoinError> {
        let var = |name: &str| var(name).filter(|value| !value.is_empty());
        let setting = |variable, value, allowed| JoinError::Setting { variable, value, allowed };
        let host =
            var("DEEPEP_DIAGNOSE_TCP_ADDR").or_else(|| var("MASTER_ADDR")).ok_or_else(|| {
                setting("MASTER_ADDR", String::new(), "it must name the host of the root")
            })?;
        let port =
            match var("DEEPEP_DIAGNOSE_TCP_PORT") {
                Some(value) => value.parse().ok().filter(|port| *port > 0).ok_or_else(|| {
                    setting("DEEPEP_DIAGNOSE_TCP_PORT", value, "a port, 1 to 65535")
                })?,
                None => {
                    let allowed = "a port below 65535, unless DEEPEP_DIAGNOSE_TCP_PORT is set";
                    let master: u16 = number(&var, "MASTER_PORT", allowed)?;
                    master
                        .checked_add(1)
                        .ok_or_else(|| setting("MASTER_PORT", master.to_string(), allowed))?
                }
            };
        let secret = var("DEEPEP_DIAGNOSE_SECRET").or_else(|| var("TORCHELASTIC_RUN_ID"));
        let mut group = Self::new(membership, host, port, &secret.unwrap_or_default())?;
        if let Some(value) = var("DEEPEP_DIAGNOSE_TCP_BIND") {
            let address = value.parse().map_err(|_| {
                setting("DEEPEP_DIAGNOSE_TCP_BIND", value, "an IP address of this machine")
            })?;
            group.bind = Some(address);
        }
        Ok(group)
    }

    /// The same group, whose root binds this address.
    #[must_use]
    pub fn with_bind(mut self, address: IpAddr) -> Self {
        self.bind = Some(address);
        self
    }

    /// Where the root is, as `host:port`.
    #[must_use]
    pub fn place(&self) -> String {
        format!("{}:{}", self.route.host, self.route.port)
    }

    /// Root: binds now rather than when joining, so that a port of 0 becomes a free one that the
    /// other ranks can be told.
    ///
    /// # Errors
    ///
    /// The address cannot be bound.
    pub fn listen(&mut self) -> Result<SocketAddr, JoinError> {
        let listener = self.bind_now()?;
        let address = listener.local_addr().map_err(|error| self.failed(&error))?;
        self.route.port = address.port();
        self.listener = Some(listener);
        Ok(address)
    }

    fn failed(&self, error: &std::io::Error) -> JoinError {
        let place = match self.bind {
            Some(address) => SocketAddr::new(address, self.route.port).to_string(),
            None => self.place(),
        };
        JoinError::Transport { what: format!("listening at {place}"), reason: error.to_string() }
    }

    fn bind_now(&self) -> Result<TcpListener, JoinError> {
        let port = self.route.port;
        let bound = match (self.bind, own_address(&self.route.host)) {
            (Some(address), _) => TcpListener::bind((address, port)),
            (None, Some(address)) => TcpListener::bind((address, port)).or_else(|error| {
                // An address that another machine translates.
                let translated = error.kind() == ErrorKind::AddrNotAvailable;
                if translated { bind_all(port) } else { Err(error) }
            }),
            (None, None) => bind_all(port),
        };
        bound.map_err(|error| self.failed(&error))
    }

    fn bind_until(&self, until: Until<'_>) -> Result<TcpListener, JoinError> {
        loop {
            match self.bind_now() {
                Err(error) if until.is_over() => return Err(error),
                Err(_) => until.sleep(PORT_BUSY),
                Ok(listener) => return Ok(listener),
            }
        }
    }
}

impl Group for TcpGroup {
    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn join(
        mut self: Box<Self>,
        proposal: &Proposal,
        until: Until<'_>,
    ) -> Result<Option<Joined>, JoinError> {
        if !self.membership.is_root() {
            return leaf::join(self.membership, self.route, proposal, until);
        }
        let listener = match self.listener.take() {
            Some(listener) => listener,
            None => self.bind_until(until.at_most(Duration::from_secs(10)))?,
        };
        let limit = self.membership.size() + 64;
        let doors = Doors::new(listener, self.route.secret.clone(), limit)
            .map_err(|error| self.failed(&error))?;
        root::join(self.membership, doors, proposal, until)
    }
}

/// The address to listen at where the root's host is given as one. A name tells nothing: hosts often
/// know their own as a loopback address.
fn own_address(host: &str) -> Option<IpAddr> {
    if host == "localhost" { Some(Ipv4Addr::LOCALHOST.into()) } else { host.parse().ok() }
}

/// Listens at all addresses, of both kinds where there are both.
fn bind_all(port: u16) -> std::io::Result<TcpListener> {
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
}

fn number<T: std::str::FromStr>(
    var: &impl Fn(&str) -> Option<String>,
    variable: &'static str,
    allowed: &'static str,
) -> Result<T, JoinError> {
    let value = var(variable).unwrap_or_default();
    value.trim().parse().map_err(|_| JoinError::Setting { variable, value, allowed })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(vars: &[(&str, &str)]) -> Result<TcpGroup, JoinError> {
        TcpGroup::from_vars(|name| {
            vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    const TORCHRUN: [(&str, &str); 5] = [
        ("RANK", "3"),
        ("WORLD_SIZE", "8"),
        ("MASTER_ADDR", "10.0.0.1"),
        ("MASTER_PORT", "29500"),
        ("TORCHELASTIC_RUN_ID", "run"),
    ];

    fn with(name: &'static str, value: &'static str) -> Result<TcpGroup, JoinError> {
        let mut vars = vec![(name, value)];
        vars.extend(TORCHRUN);
        group(&vars)
    }

    #[test]
    fn torchrun_sets_all_that_is_needed() {
        let group = group(&TORCHRUN).unwrap();
        assert_eq!(group.place(), "10.0.0.1:29501");
        assert_eq!((group.membership.rank(), group.membership.size()), (3, 8));
        assert!(!format!("{group:?}").contains("run"), "the secret is not printed");
    }

    #[test]
    fn variables_of_our_own_take_precedence() {
        let group = with("DEEPEP_DIAGNOSE_TCP_PORT", "7000").unwrap();
        assert_eq!(group.place(), "10.0.0.1:7000");
        assert_eq!(with("DEEPEP_DIAGNOSE_TCP_ADDR", "b").unwrap().place(), "b:29501");
        let bind = with("DEEPEP_DIAGNOSE_TCP_BIND", "127.0.0.1").unwrap().bind;
        assert_eq!(bind, Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }

    #[test]
    fn only_an_address_is_bound_as_such() {
        assert_eq!(own_address("10.0.0.1"), Some(IpAddr::from([10, 0, 0, 1])));
        assert_eq!(own_address("localhost"), Some(IpAddr::from([127, 0, 0, 1])));
        assert_eq!(own_address("::1"), Some(IpAddr::V6(Ipv6Addr::LOCALHOST)));
        // Its own name is often a loopback address on the host itself.
        assert_eq!(own_address("node-0"), None);
    }

    #[test]
    fn wrong_and_missing_variables_are_named_with_their_value() {
        let error = |name, value| with(name, value).unwrap_err().to_string();
        let port = error("DEEPEP_DIAGNOSE_TCP_PORT", "0");
        assert_eq!(port, "DEEPEP_DIAGNOSE_TCP_PORT=\"0\" cannot be used: a port, 1 to 65535");
        assert!(error("DEEPEP_DIAGNOSE_TCP_BIND", "eth0").contains("\"eth0\""));
        assert!(error("RANK", "8").contains("8 with WORLD_SIZE=8"));
        assert!(error("WORLD_SIZE", "-1").contains("WORLD_SIZE=\"-1\""));
        assert!(error("MASTER_PORT", "65535").contains("below 65535"));
        for missing in ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"] {
            let vars: Vec<_> = TORCHRUN.into_iter().filter(|(name, _)| *name != missing).collect();
            assert!(group(&vars).unwrap_err().to_string().contains(missing), "{missing}");
        }
        let error = group(&TORCHRUN[..4]).unwrap_err().to_string();
        assert!(error.contains("DEEPEP_DIAGNOSE_SECRET"), "{error}");
    }
}
