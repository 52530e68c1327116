//! The hub of a group, in the process of rank 0: the rendezvous of all processes, and a relay for bytes
//! between processes without a faster link.
//!
//! Every process, including rank 0, has one connection and waits for at most one thing on it: a round, in
//! which all take part, or the other end of a send or receive. The hub compares the calls, forwards their
//! bytes, and tells all processes when one disconnects. It has no knowledge of tensors; calls are strings.
//!
//! Invariant: a process gets an answer only to its own request, or a failure of the group.

use super::error::{ranks, seconds};
use super::wire::{self, Answer, Refusal, Say, Wants, shortened};
use super::{LEAVING, World};
use crate::base::guard;
use parking_lot::{Condvar, Mutex};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time limit for a new connection to identify itself.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Polling interval for new connections and timeouts.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Time limit for the others to read the last answers of a closing hub.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Limit on connections that have not identified themselves.
const MAX_UNIDENTIFIED: usize = 64;

/// Bytes of one process; several processes may receive them.
type Bytes = Arc<Vec<u8>>;

/// The hub. Dropping it waits until the others have read its last answers, then stops it.
pub(super) struct Hub {
    shared: Arc<HubShared>,
    thread: Option<JoinHandle<()>>,
}

struct HubShared {
    id: String,
    size: usize,
    timeout: Duration,
    state: Mutex<State>,
    /// Signals that a connection ended, or that the hub should close.
    changed: Condvar,
}

struct State {
    peers: Vec<Peer>,
    since: Instant,
    complete: bool,
    /// The group has failed, and all processes have been notified.
    failed: bool,
    closing: bool,
    strangers: usize,
    open: usize,
}

#[derive(Default)]
struct Peer {
    writer: Option<Arc<Mutex<TcpStream>>>,
    device: Option<String>,
    asked: Option<Asked>,
    /// The process left together with all others.
    left: bool,
}

struct Asked {
    what: Asking,
    since: Instant,
}

enum Asking {
    Round { call: String, wants: Wants, bytes: Bytes },
    Send { to: usize, what: String, bytes: Bytes },
    Receive { from: usize, what: String },
}

/// A message for a rank: an answer, and parts of the bytes that others sent.
struct Delivery {
    to: usize,
    answer: Answer,
    parts: Vec<(Bytes, std::ops::Range<usize>)>,
}

impl Hub {
    /// Starts a hub that collects the processes of `world` at a listener until the timeout.
    pub fn start(listener: TcpListener, world: &World, id: &str, timeout: Duration) -> std::io::Result<Hub> {
        listener.set_nonblocking(true)?;
        let state = State {
            peers: (0..world.size).map(|_| Peer::default()).collect(),
            since: Instant::now(),
            complete: false,
            failed: false,
            closing: false,
            strangers: 0,
            open: 0,
        };
        let shared = HubShared {
            id: id.into(),
            size: world.size,
            timeout,
            state: Mutex::new(state),
            changed: Condvar::new(),
        };
        let shared = Arc::new(shared);
        let thread = {
            let shared = shared.clone();
            std::thread::Builder::new().name("runnel-hub".into()).spawn(move || shared.serve(listener))?
        };
        Ok(Hub { shared, thread: Some(thread) })
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let end = Instant::now() + SHUTDOWN_TIMEOUT;
        // A process that has read its last answer closes its end.
        while state.open > 0 && !self.shared.changed.wait_until(&mut state, end).timed_out() {}
        state.closing = true;
        for peer in &mut state.peers {
            if let Some(writer) = peer.writer.take().as_ref().and_then(|writer| writer.try_lock()) {
                writer.shutdown(Shutdown::Both).ok();
            }
        }
        drop(state);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

impl HubShared {
    /// Accepts connections until all processes have joined, and checks timeouts until the end.
    fn serve(self: Arc<HubShared>, listener: TcpListener) {
        let mut listener = Some(listener);
        loop {
            let mut state = self.state.lock();
            if state.closing {
                return;
            }
            if state.complete || state.failed {
                // Free the port for others.
                listener = None;
            }
            let late = self.timed_out(&mut state);
            let full = state.strangers >= MAX_UNIDENTIFIED;
            drop(state);
            if let Some(answer) = late {
                self.fail(answer);
            }
            if let Some(listener) = listener.as_ref().filter(|_| !full)
                && let Ok((stream, _)) = listener.accept()
            {
                self.clone().receive(stream);
                continue;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Serves a connection on its own thread.
    fn receive(self: Arc<HubShared>, stream: TcpStream) {
        self.state.lock().strangers += 1;
        let shared = self.clone();
        let thread = std::thread::Builder::new().name("runnel-peer".into());
        if thread.spawn(move || shared.attend(stream)).is_err() {
            self.state.lock().strangers -= 1;
        }
    }

    fn attend(&self, mut stream: TcpStream) {
        let identified = self.identify(&mut stream);
        self.state.lock().strangers -= 1;
        let Some(rank) = identified else { return };
        // A panic ends the connection, and so fails the group.
        guard::quiet("the hub", || {
            while let Ok((say, bytes)) = wire::read::<Say>(&mut stream, u64::MAX) {
                self.handle_message(rank, say, bytes);
            }
        });
        stream.shutdown(Shutdown::Both).ok();
        let mut state = self.state.lock();
        state.open -= 1;
        let gone = !state.peers[rank].left;
        drop(state);
        if gone {
            self.fail(Answer::Failed { rank, reason: "its process ended".into() });
        }
        self.changed.notify_all();
    }

    /// Assigns a peer to a new connection if it belongs to the group.
    fn identify(&self, stream: &mut TcpStream) -> Option<usize> {
        stream.set_nonblocking(false).ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_read_timeout(Some(HANDSHAKE_TIMEOUT)).ok()?;
        let (say, _) = wire::read::<Say>(stream, 0).ok()?;
        let Say::Hello { version, id, rank, size, device } = say else { return None };
        let writer = Arc::new(Mutex::new(stream.try_clone().ok()?));
        let mut state = self.state.lock();
        let refused = self.refusal(&state, (&version, &id), rank, size, device.as_deref());
        if let Some((why, reason)) = refused {
            drop(state);
            wire::write(stream, &Answer::Refused { why, reason }, &[], &mut || Ok(())).ok();
            return None;
        }
        stream.set_read_timeout(None).ok()?;
        state.open += 1;
        let peer = &mut state.peers[rank];
        (peer.writer, peer.device) = (Some(writer.clone()), device);
        state.complete = state.peers.iter().all(|peer| peer.writer.is_some());
        let complete = state.complete;
        // The process that completes the group gets `Joined` before `Complete`, like all others.
        let mut own = writer.lock();
        drop(state);
        self.write(&mut own, &Answer::Joined, &[]);
        drop(own);
        if complete {
            (0..self.size)
                .for_each(|to| self.deliver(Delivery { to, answer: Answer::Complete, parts: Vec::new() }));
        }
        Some(rank)
    }

    fn refusal(
        &self,
        state: &State,
        (version, id): (&str, &str),
        rank: usize,
        size: usize,
        device: Option<&str>,
    ) -> Option<(Refusal, String)> {
        if id != self.id {
            return Some((Refusal::NotAMember, "another group uses this address".into()));
        }
        if version != super::VERSION {
            let reason = format!("rank 0 runs Runnel {}, and this process {version}", super::VERSION);
            return Some((Refusal::Setting, reason));
        }
        if size != self.size {
            let reason = format!(
                "this process says that the group has {size} processes, and rank 0 that it has {}",
                self.size
            );
            return Some((Refusal::Setting, reason));
        }
        let peer = state.peers.get(rank)?;
        if peer.writer.is_some() || state.failed {
            return Some((Refusal::Setting, format!("there are two processes of rank {rank}")));
        }
        let same = |peer: &Peer| device.is_some() && peer.device.as_deref() == device;
        let other = state.peers.iter().position(same)?;
        let (one, two) = (rank.min(other), rank.max(other));
        Some((Refusal::Device, format!("ranks {one} and {two} have the same device")))
    }

    /// Handles a message of a rank.
    fn handle_message(&self, rank: usize, say: Say, bytes: Vec<u8>) {
        let bytes = Arc::new(bytes);
        let what = match say {
            Say::Round { call, wants } => Asking::Round { call, wants, bytes },
            Say::Send { to, what } => Asking::Send { to, what, bytes },
            Say::Receive { from, what } => Asking::Receive { from, what },
            Say::Failed { reason } => return self.fail(Answer::Failed { rank, reason }),
            Say::Hello { .. } => return,
        };
        let mut state = self.state.lock();
        if state.failed {
            return;
        }
        state.peers[rank].asked = Some(Asked { what, since: Instant::now() });
        let deliveries = state.settle(rank);
        drop(state);
        deliveries.into_iter().for_each(|delivery| self.deliver(delivery));
    }

    /// Notifies all processes, once, that the group has failed.
    fn fail(&self, answer: Answer) {
        let answer = match answer {
            Answer::Failed { rank, reason } => Answer::Failed { rank, reason: shortened(&reason) },
            other => other,
        };
        let mut state = self.state.lock();
        if state.failed {
            return;
        }
        state.failed = true;
        drop(state);
        for to in 0..self.size {
            self.deliver(Delivery { to, answer: answer.clone(), parts: Vec::new() });
        }
    }

    /// The timeout that has passed, if any.
    fn timed_out(&self, state: &mut State) -> Option<Answer> {
        if state.failed {
            return None;
        }
        let after = seconds(self.timeout);
        if !state.complete {
            if state.since.elapsed() <= self.timeout {
                return None;
            }
            let missing = |(rank, peer): (usize, &Peer)| peer.writer.is_none().then_some(rank);
            let missing: Vec<usize> = state.peers.iter().enumerate().filter_map(missing).collect();
            return Some(Answer::NotMet {
                text: format!("{} did not connect within {after}", ranks(&missing)),
            });
        }
        let is_late =
            |peer: &Peer| peer.asked.as_ref().is_some_and(|asked| asked.since.elapsed() > self.timeout);
        let first = state.peers.iter().position(is_late)?;
        let call = state.peers[first].asked.as_ref().map(|asked| asked.what.text()).unwrap_or_default();
        Some(Answer::Late {
            text: format!("{call} did not end within {after}: {}", state.describe_calls(Some(first))),
        })
    }

    fn deliver(&self, delivery: Delivery) {
        let writer = self.state.lock().peers[delivery.to].writer.clone();
        let Some(writer) = writer else { return };
        let mut stream = writer.lock();
        let pieces: Vec<&[u8]> = delivery.parts.iter().map(|(bytes, range)| &bytes[range.clone()]).collect();
        self.write(&mut stream, &delivery.answer, &pieces);
    }

    /// Ignores write errors: the connection's own thread detects that the process is gone.
    fn write(&self, stream: &mut TcpStream, answer: &Answer, pieces: &[&[u8]]) {
        let mut go_on = || match self.state.lock().closing {
            true => Err(super::error::not_initialized()),
            false => Ok(()),
        };
        wire::write(stream, answer, pieces, &mut go_on).ok();
    }
}

impl Asking {
    fn text(&self) -> String {
        match self {
            Asking::Round { call, .. } if call == LEAVING => "the end of the group".into(),
            Asking::Round { call, .. } => call.clone(),
            Asking::Send { to, what, .. } => format!("`dist.send` of {what} to rank {to}"),
            Asking::Receive { from, what } => format!("`dist.recv` of {what} from rank {from}"),
        }
    }
}

impl State {
    /// The messages to send after `rank` has made a request.
    fn settle(&mut self, rank: usize) -> Vec<Delivery> {
        if let Some(pair) = self.pair(rank) {
            return pair;
        }
        let waiting = self.peers.iter().filter(|peer| peer.asked.is_some()).count();
        if waiting < self.peers.len() {
            return Vec::new();
        }
        if let Some(done) = self.round() {
            return done;
        }
        // Deadlock: every process waits for another.
        let text = self.describe_calls(None);
        (0..self.peers.len()).map(|to| self.differ(to, &text, true)).collect()
    }

    /// Matches a send with its receive, if one of them is `rank`'s and the other has been requested.
    fn pair(&mut self, rank: usize) -> Option<Vec<Delivery>> {
        let (sender, receiver) = match &self.peers[rank].asked.as_ref()?.what {
            Asking::Send { to, .. } => (rank, *to),
            Asking::Receive { from, .. } => (*from, rank),
            Asking::Round { .. } => return None,
        };
        let asked = |rank: usize| self.peers.get(rank)?.asked.as_ref().map(|asked| &asked.what);
        let (Some(Asking::Send { to, what, bytes }), Some(Asking::Receive { from, what: wanted })) =
            (asked(sender), asked(receiver))
        else {
            return None;
        };
        if *to != receiver || *from != sender {
            return None;
        }
        if what != wanted {
            let text = format!("rank {sender} sends {what} to rank {receiver}, which receives {wanted}");
            return Some(vec![self.differ(sender, &text, false), self.differ(receiver, &text, false)]);
        }
        let parts = vec![(bytes.clone(), 0..bytes.len())];
        self.peers[sender].asked = None;
        self.peers[receiver].asked = None;
        let sent = Delivery { to: sender, answer: Answer::Done, parts: Vec::new() };
        Some(vec![Delivery { to: receiver, answer: Answer::Done, parts }, sent])
    }

    /// Completes a round if all processes take part in one.
    fn round(&mut self) -> Option<Vec<Delivery>> {
        let mut rounds = Vec::with_capacity(self.peers.len());
        for peer in &self.peers {
            match &peer.asked.as_ref()?.what {
                Asking::Round { call, wants, bytes } => rounds.push((call, *wants, bytes)),
                _ => return None,
            }
        }
        let (first, size) = (rounds[0].0, rounds.len());
        if let Some(other) = rounds.iter().position(|(call, ..)| *call != first) {
            let text = format!("rank 0 called {first}, and rank {other} called {}", rounds[other].0);
            return Some((0..size).map(|to| self.differ(to, &text, false)).collect());
        }
        let whole = |(_, _, bytes): &(&String, Wants, &Bytes)| (Arc::clone(bytes), 0..bytes.len());
        let leaving = first == LEAVING;
        let mut done = Vec::with_capacity(size);
        for (to, (_, wants, _)) in rounds.iter().enumerate() {
            let parts = match wants {
                Wants::Nothing => Vec::new(),
                Wants::From(rank) => rounds.get(*rank).map(whole).into_iter().collect(),
                Wants::All => rounds.iter().map(whole).collect(),
                Wants::Part => {
                    let part = |(_, _, bytes): &(&String, Wants, &Bytes)| {
                        let length = bytes.len() / size;
                        (Arc::clone(bytes), to * length..(to + 1) * length)
                    };
                    rounds.iter().map(part).collect()
                }
            };
            done.push(Delivery { to, answer: Answer::Done, parts });
        }
        for peer in &mut self.peers {
            peer.asked = None;
            peer.left |= leaving;
        }
        Some(done)
    }

    fn differ(&mut self, to: usize, text: &str, stuck: bool) -> Delivery {
        self.peers[to].asked = None;
        Delivery { to, answer: Answer::Differ { text: text.into(), stuck }, parts: Vec::new() }
    }

    /// Describes the call in which each rank except `but` waits, or that it does not wait.
    fn describe_calls(&self, but: Option<usize>) -> String {
        let mut texts = Vec::new();
        let mut away = Vec::new();
        let asked = but.and_then(|rank| self.peers[rank].asked.as_ref()).map(|asked| asked.what.text());
        for (rank, peer) in self.peers.iter().enumerate().filter(|(rank, _)| Some(*rank) != but) {
            match peer.asked.as_ref().map(|asked| asked.what.text()) {
                None => away.push(rank),
                Some(text) if Some(&text) == asked.as_ref() => {}
                Some(text) => texts.push(format!("rank {rank} is in {text}")),
            }
        }
        if !away.is_empty() {
            let have = if away.len() == 1 { "has" } else { "have" };
            texts.push(format!("{} {have} not reached it", ranks(&away)));
        }
        texts.join(", ")
    }
}
