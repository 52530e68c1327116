//! Errors of process groups: launcher variables, rendezvous, failures between processes.

pub use crate::driver::links::{links_failed, too_late};

use crate::base::{Code, Error, ErrorKind, Place};
use crate::driver::links::{GROUP_TIME, PEER_FAILED};
use std::time::Duration;

/// Every error code of this module.
pub static CODES: &[&Code] = &[
    &GROUP_SETTING,
    &GROUP_DEVICE,
    &GROUP_STATE,
    &NOT_MET,
    &STRANGER,
    &PEER_FAILED,
    &GROUP_TIME,
    &CALLS_DIFFER,
    &GROUP_ARGUMENT,
    &GROUP_FORBIDDEN,
];

static GROUP_SETTING: Code = Code {
    id: "E0530",
    kind: ErrorKind::Value,
    title: "bad launcher variables",
    page: "`dist.init()` reads how many processes there are, and which one this is, from the variables \
           that launchers set: `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `MASTER_ADDR` and `MASTER_PORT` \
           (`torchrun`), `OMPI_COMM_WORLD_RANK` and similar ones (`mpirun` of Open MPI), `PMI_RANK` and \
           `PMI_SIZE` (MPICH), `SLURM_PROCID` and `SLURM_NTASKS` (`srun`). One of them is missing, is not \
           a number, or contradicts the others.\n\nStart the script with a launcher, set all of them by \
           hand, or set none of them: then the group has one process.",
    example: "",
};

static GROUP_DEVICE: Code = Code {
    id: "E0531",
    kind: ErrorKind::Device,
    title: "no device for this process",
    page: "Each process of a group has its own CUDA device, whose index is its local rank. \
           This machine has fewer devices than processes, or two processes were given the same \
           device.\n\nStart as many processes per machine as it has devices. On emulated devices, \
           `--devices N` makes more of them.",
    example: "",
};

static GROUP_STATE: Code = Code {
    id: "E0532",
    kind: ErrorKind::Value,
    title: "no process group, or a second one",
    page: "The functions of `dist` need a group: call `dist.init()` once, before all others. After \
           `dist.destroy()` there is no group again.",
    example: "dist.all_reduce(ones(2))",
};

static NOT_MET: Code = Code {
    id: "E0533",
    kind: ErrorKind::Io,
    title: "the processes did not meet",
    page: "The process of rank 0 listens at `MASTER_ADDR` and `MASTER_PORT`, and the others connect to it. \
           Not all of them did within the time that `dist.init(timeout=...)` gives, or rank 0 cannot listen \
           there.\n\nAre all processes started, with the same address and port, and `WORLD_SIZE` of them? \
           Does the name resolve to the machine of rank 0, and does the firewall allow the port?",
    example: "",
};

static STRANGER: Code = Code {
    id: "E0534",
    kind: ErrorKind::Io,
    title: "another program uses the address of the group",
    page: "Another program or another group answers at `MASTER_ADDR` and `MASTER_PORT`, not rank 0 of this \
           group.\n\nChoose another `MASTER_PORT`, the same for all processes.",
    example: "",
};

static CALLS_DIFFER: Code = Code {
    id: "E0537",
    kind: ErrorKind::Value,
    title: "processes call different operations",
    page: "All processes of a group must call the same collective operations in the same order, with \
           tensors of the same shape and dtype on the same kind of device. A `recv` needs a tensor like the \
           one that is sent.\n\nThe message says what each of two processes called; the group stays usable.",
    example: "",
};

static GROUP_ARGUMENT: Code = Code {
    id: "E0538",
    kind: ErrorKind::Value,
    title: "bad argument of a collective operation",
    page: "`op` is `\"sum\"`, `\"product\"`, `\"min\"`, `\"max\"` or `\"avg\"`; `src` and `dst` are ranks of the \
           group; `reduce_scatter` needs a first dimension that divides into equal parts for all processes; \
           tensors are on the host, or on the device of their process.",
    example: "dist.init()\ndist.all_reduce(ones(2), op=\"mean\")",
};

static GROUP_FORBIDDEN: Code = Code {
    id: "E0539",
    kind: ErrorKind::Io,
    title: "the script may not join other processes",
    page: "A process group listens and connects on the network, which scripts inside another program may \
           do only when that program allows it: `Engine::builder().groups(true)`. Without a launcher's \
           variables `dist.init()` makes a group of this process alone, which is always allowed.",
    example: "",
};

/// `2.5 s`
pub(super) fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

/// `rank 1`, `ranks 1, 2 and 3`
pub(super) fn ranks(list: &[usize]) -> String {
    match list {
        [one] => format!("rank {one}"),
        [all @ .., last] => {
            let all: Vec<String> = all.iter().map(usize::to_string).collect();
            format!("ranks {} and {last}", all.join(", "))
        }
        [] => "no rank".into(),
    }
}

/// `name` is not set, but `because` is.
pub(super) fn setting_missing(name: &str, because: &str) -> Error {
    Error::new(&GROUP_SETTING, format!("`{because}` is set, but `{name}` is not"))
        .help(format!("set `{name}` too, or start the script with a launcher such as `torchrun`"))
}

/// A variable's value is not a valid number.
pub(super) fn setting_not_number(name: &str, value: &str, wanted: &str) -> Error {
    Error::new(&GROUP_SETTING, format!("`{name}={value}` is not {wanted}"))
}

/// A rank outside its group.
pub(super) fn rank_out_of_range(name: &str, rank: usize, size_name: &str, size: usize) -> Error {
    let error = Error::new(
        &GROUP_SETTING,
        format!("`{name}={rank}` is not a rank of a group of `{size_name}={size}` processes"),
    );
    match size {
        0 => error.help("a group has at least one process"),
        _ => error.help(format!("ranks go from 0 to {}", size - 1)),
    }
}

/// Rank 0 rejected a process because its settings do not fit.
pub(super) fn does_not_fit(reason: &str) -> Error {
    Error::new(&GROUP_SETTING, reason)
}

/// There is no device for this local rank.
pub fn too_few_devices(local_rank: usize, count: usize, emulated: bool) -> Error {
    let devices = if count == 1 { "1 device".into() } else { format!("{count} devices") };
    let error = Error::new(
        &GROUP_DEVICE,
        format!(
            "the process of local rank {local_rank} needs `cuda:{local_rank}`, but there are {devices} here"
        ),
    );
    match emulated {
        true => error.help(format!("run with `--devices {}`, or start fewer processes", local_rank + 1)),
        false => {
            error.help("start as many processes per machine as it has devices; `LOCAL_RANK` numbers them")
        }
    }
}

/// Rank 0 rejected a process because another one uses the same device.
pub(super) fn same_device(reason: &str) -> Error {
    Error::new(&GROUP_DEVICE, reason)
        .help("each process needs its own device: set `LOCAL_RANK`, or start fewer processes")
}

/// A function of `dist` was called before `dist.init()`.
pub fn not_initialized() -> Error {
    Error::new(&GROUP_STATE, "there is no process group").help("call `dist.init()` first")
}

/// `dist.init()` was called again.
pub fn already_initialized() -> Error {
    Error::new(&GROUP_STATE, "a process group exists already").help("call `dist.destroy()` first")
}

/// The rendezvous failed.
pub(super) fn not_met(message: impl Into<String>) -> Error {
    Error::new(&NOT_MET, message)
}

/// The port belongs to something else.
pub(super) fn stranger(message: impl Into<String>) -> Error {
    Error::new(&STRANGER, message).help("choose another `MASTER_PORT`, the same for all processes")
}

/// A process of the group failed.
pub(super) fn peer_failed(rank: usize, reason: &str) -> Error {
    Error::new(&PEER_FAILED, format!("rank {rank} failed: {reason}"))
        .label(Place::Here, "this process learned of it here")
}

/// The processes made different calls, or all wait for each other.
pub(super) fn calls_differ(text: impl Into<String>, stuck: bool) -> Error {
    Error::new(&CALLS_DIFFER, text).help(match stuck {
        true => "each waits for another: let one of two processes receive before it sends",
        false => "all must call the same operations in the same order, with tensors of one shape and dtype",
    })
}

/// A bad argument.
pub fn argument(message: impl Into<String>) -> Error {
    Error::new(&GROUP_ARGUMENT, message)
}

/// The host program does not allow groups.
pub fn forbidden() -> Error {
    Error::new(&GROUP_FORBIDDEN, "this script may not join other processes")
        .help("the program that runs it can allow that: `Engine::builder().groups(true)`")
}
