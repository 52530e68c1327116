//! A process's connection to the hub of its group: joining and requests.
//!
//! A thread reads the hub's messages, so a failure of another process is known at once, regardless of what
//! this process is doing.

use super::error;
use super::wire::{self, Answer, Refusal, Say};
use super::{Meeting, VERSION, World};
use crate::base::Result;
use crate::driver::error::stopped;
use crate::driver::links::GroupState;
use parking_lot::Mutex;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time limit for the other side to answer the first frame.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Polling interval of a wait that may be cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Extra time for a process beyond the hub's timeout: only the hub knows which ranks are missing.
const GRACE: Duration = Duration::from_secs(10);

/// A connection to the hub.
pub(super) struct Link {
    /// For closing the connection without taking a lock.
    stream: TcpStream,
    writer: Arc<Mutex<TcpStream>>,
    answers: Receiver<(Answer, Vec<u8>)>,
    reader: Option<JoinHandle<()>>,
    group_state: Arc<GroupState>,
}

/// The result of one attempt to join.
enum Attempt {
    Joined(TcpStream),
    /// Nothing listens at the address.
    Nobody(io::Error),
    /// Something else listens there.
    NotAMember(String),
}

/// Listens at the meeting address.
pub(super) fn listen(meeting: &Meeting) -> Result<TcpListener> {
    let mut taken = None;
    for port in meeting.port..=meeting.port.saturating_add(meeting.ports - 1) {
        let place = format!("{}:{port}", meeting.host);
        let addresses = (meeting.host.as_str(), port).to_socket_addrs();
        let addresses: Vec<SocketAddr> = match addresses {
            Ok(found) => found.collect(),
            Err(reason) => {
                return Err(error::not_met(format!("`{}` is not a known host: {reason}", meeting.host)));
            }
        };
        let bound = TcpListener::bind(&addresses[..]).or_else(|reason| match reason.kind() {
            // Behind network address translation, the machine may not have its own public address.
            io::ErrorKind::AddrNotAvailable => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
            _ => Err(reason),
        });
        match bound {
            Ok(listener) => return Ok(listener),
            Err(reason) if reason.kind() == io::ErrorKind::AddrInUse => taken = Some(place),
            Err(reason) => {
                return Err(error::not_met(format!("rank 0 cannot listen at `{place}`: {reason}")));
            }
        }
    }
    let place = taken.unwrap_or_else(|| meeting.host.clone());
    Err(error::stranger(format!("rank 0 cannot listen at `{place}`: another program already does")))
}

/// The address at which processes of this machine reach a listener.
pub(super) fn reached(listener: &TcpListener) -> io::Result<SocketAddr> {
    let mut address = listener.local_addr()?;
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(IpAddr::V6(Ipv6Addr::LOCALHOST)),
        _ => {}
    }
    Ok(address)
}

/// Connects to rank 0; retries while it is not there yet.
fn connect(
    world: &World,
    meeting: &Meeting,
    own: Option<SocketAddr>,
    hello: &Say,
    time: Duration,
) -> Result<TcpStream> {
    let end = Instant::now() + time;
    let ports: Vec<u16> = (meeting.port..=meeting.port.saturating_add(meeting.ports - 1)).collect();
    let mut pause = Duration::from_millis(10);
    loop {
        let (mut met, mut reason) = (None, None);
        for &port in &ports {
            let addresses: Vec<SocketAddr> = match own {
                Some(address) => vec![address],
                None => match (meeting.host.as_str(), port).to_socket_addrs() {
                    Ok(found) => found.collect(),
                    Err(why) => {
                        reason = Some(why);
                        continue;
                    }
                },
            };
            for address in addresses {
                stopped()?;
                match attempt(address, hello, end)? {
                    Attempt::Joined(stream) => return Ok(stream),
                    Attempt::Nobody(why) => reason = Some(why),
                    Attempt::NotAMember(text) => {
                        let text = format!("rank {} found at `{}:{port}`: {text}", world.rank, meeting.host);
                        if ports.len() == 1 {
                            return Err(error::stranger(text));
                        }
                        met = Some(text);
                    }
                }
            }
        }
        if Instant::now() + pause >= end {
            let place = format!("{}:{}", meeting.host, meeting.port);
            let after = error::seconds(time);
            let why = reason.map(|why| format!(": {why}")).unwrap_or_default();
            return Err(match met {
                Some(text) => error::stranger(text),
                None => error::not_met(format!("rank 0 did not answer at `{place}` within {after}{why}"))
                    .help("is the process of rank 0 started, with the same `MASTER_ADDR` and `MASTER_PORT`?"),
            });
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}

/// One connection attempt.
fn attempt(address: SocketAddr, hello: &Say, end: Instant) -> Result<Attempt> {
    let left = |most: Duration| end.saturating_duration_since(Instant::now()).clamp(POLL_INTERVAL, most);
    let mut stream = match TcpStream::connect_timeout(&address, left(Duration::from_secs(2))) {
        Ok(stream) => stream,
        Err(reason) => return Ok(Attempt::Nobody(reason)),
    };
    let patience = left(HANDSHAKE_TIMEOUT);
    let greeted = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(patience)));
    let greeted = match greeted {
        Ok(()) => wire::write(&mut stream, hello, &[], &mut stopped)?,
        Err(reason) => Err(reason),
    };
    if let Err(reason) = greeted {
        return Ok(Attempt::Nobody(reason));
    }
    let answer = wire::read::<Answer>(&mut stream, 0);
    Ok(match answer {
        Ok((Answer::Joined, _)) => match stream.set_read_timeout(None) {
            Ok(()) => Attempt::Joined(stream),
            Err(reason) => Attempt::Nobody(reason),
        },
        Ok((Answer::Refused { why, reason }, _)) => match why {
            Refusal::NotAMember => Attempt::NotAMember(reason),
            Refusal::Setting => return Err(error::does_not_fit(&reason)),
            Refusal::Device => return Err(error::same_device(&reason)),
        },
        Ok(_) => Attempt::NotAMember("it sent an unexpected message".into()),
        Err(reason) => match reason.kind() {
            io::ErrorKind::InvalidData => Attempt::NotAMember("another program listens there".into()),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                Attempt::NotAMember("a program that does not answer listens there".into())
            }
            _ => Attempt::Nobody(reason),
        },
    })
}

impl Link {
    /// Connects and waits until all processes have joined. `own` is the hub's address in the process of rank
    /// 0.
    pub fn meet(
        world: &World,
        meeting: &Meeting,
        own: Option<SocketAddr>,
        device: Option<String>,
        time: Duration,
        group_state: Arc<GroupState>,
    ) -> Result<Link> {
        let hello = Say::Hello {
            version: VERSION.into(),
            id: meeting.id.clone(),
            rank: world.rank,
            size: world.size,
            device,
        };
        let start = Instant::now();
        let stream = connect(world, meeting, own, &hello, time)?;
        let broken = |reason: io::Error| error::not_met(format!("the connection to rank 0 failed: {reason}"));
        let mut incoming = stream.try_clone().map_err(broken)?;
        let own_end = stream.try_clone().map_err(broken)?;
        let writer = Arc::new(Mutex::new(stream));
        let own = writer.clone();
        group_state.announce_with(move |reason| {
            let Some(mut writer) = own.try_lock() else { return };
            let say = Say::Failed { reason: wire::shortened(reason) };
            let give_up = || Err(error::not_initialized());
            wire::write(&mut writer, &say, &[], &mut { give_up }).ok();
        });
        let (send, answers) = channel();
        let told = group_state.clone();
        let thread = std::thread::Builder::new().name("runnel-link".into());
        let reader = thread.spawn(move || {
            loop {
                match wire::read::<Answer>(&mut incoming, u64::MAX) {
                    Ok((Answer::Failed { rank, reason }, _)) => told.fail(error::peer_failed(rank, &reason)),
                    Ok((Answer::NotMet { text }, _)) => told.fail(error::not_met(text)),
                    Ok((Answer::Late { text }, _)) => told.fail(error::too_late(text)),
                    Ok(answer) => match send.send(answer) {
                        Ok(()) => continue,
                        Err(_) => break,
                    },
                    Err(_) => told.fail(error::peer_failed(0, "its process ended")),
                }
                break;
            }
            // Closing tells the hub that the message was read.
            incoming.shutdown(Shutdown::Both).ok();
        });
        let reader = Some(reader.map_err(broken)?);
        let link = Link { stream: own_end, writer, answers, reader, group_state };
        let left = time.saturating_sub(start.elapsed());
        match link.wait(left, "`dist.init`")? {
            (Answer::Complete, _) => Ok(link),
            _ => Err(error::stranger("the hub of the group sent an unexpected message")),
        }
    }

    /// Sends a request, waits for its answer, and returns the bytes that come with it.
    pub fn ask(&self, say: &Say, bytes: &[u8], time: Duration, name: &str) -> Result<Vec<u8>> {
        self.group_state.check()?;
        let end = Instant::now() + time + GRACE;
        let group_state = &self.group_state;
        let mut go_on = || {
            group_state.check()?;
            stopped()?;
            if Instant::now() > end { Err(error::too_late(format!("{name} did not end"))) } else { Ok(()) }
        };
        let written = wire::write(&mut self.writer.lock(), say, &[bytes], &mut go_on);
        // After a partial frame or an abandoned answer, the stream would be out of step.
        let written = written.inspect_err(|error| self.group_state.fail_and_announce(error.clone()))?;
        if written.is_err() {
            self.group_state.fail(error::peer_failed(0, "its process ended"));
            return self.group_state.check().map(|()| Vec::new());
        }
        match self.wait(time, name).inspect_err(|error| self.group_state.fail_and_announce(error.clone()))? {
            (Answer::Done, bytes) => Ok(bytes),
            (Answer::Differ { text, stuck }, _) => Err(error::calls_differ(text, stuck)),
            _ => Err(error::links_failed("the hub sent an unexpected message")),
        }
    }

    fn wait(&self, time: Duration, name: &str) -> Result<(Answer, Vec<u8>)> {
        let end = Instant::now() + time + GRACE;
        loop {
            match self.answers.recv_timeout(POLL_INTERVAL) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => {
                    self.group_state.check()?;
                    return Err(error::links_failed("the connection to rank 0 ended"));
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.group_state.check()?;
                    stopped()?;
                    if Instant::now() > end {
                        let after = error::seconds(time);
                        return Err(error::too_late(format!("{name} did not end within {after}")));
                    }
                }
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stream.shutdown(Shutdown::Both).ok();
        if let Some(reader) = self.reader.take() {
            reader.join().ok();
        }
    }
}
