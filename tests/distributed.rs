//! Process groups: the program is started several times with the environment variables of a launcher, on
//! emulated devices.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/command.rs"]
mod command;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The outputs of a process, and its status.
#[derive(Debug)]
struct Ended {
    status: Option<i32>,
    out: String,
    err: String,
}

/// An unused port.
fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

const VARIABLES: [&str; 12] = [
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_RUN_ID",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_LAUNCH_BLOCKING",
];

/// The program with these variables of a launcher and no others.
fn program(args: &[&str], variables: &[(&str, String)]) -> Command {
    let mut command = command::runnel();
    command.args(args).env("RUNNEL_BACKEND", "emu").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    for name in VARIABLES {
        command.env_remove(name);
    }
    command.envs(variables.iter().map(|(name, value)| (*name, value.as_str())));
    command
}

/// The variables that `torchrun` sets.
fn torchrun(rank: usize, size: usize, port: u16) -> Vec<(&'static str, String)> {
    vec![
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", size.to_string()),
        ("LOCAL_RANK", rank.to_string()),
        ("MASTER_ADDR", "127.0.0.1".into()),
        ("MASTER_PORT", port.to_string()),
    ]
}

fn start(script: &str, variables: &[(&str, String)]) -> Child {
    program(&["-e", script], variables).spawn().unwrap()
}

/// Waits, but not forever.
fn ended(mut child: Child) -> Ended {
    let end = Instant::now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            panic!("it hangs: {}", String::from_utf8_lossy(&output.stderr));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { status: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// Runs a script in `size` processes.
fn group(size: usize, script: &str) -> Vec<Ended> {
    let port = free_port();
    let children: Vec<Child> = (0..size).map(|rank| start(script, &torchrun(rank, size, port))).collect();
    children.into_iter().map(ended).collect()
}

/// The same, which must succeed; returns what each printed.
fn printed(size: usize, script: &str) -> Vec<String> {
    let check = |e: Ended| {
        assert_eq!((e.status, e.err.as_str()), (Some(0), ""), "{script}\n{}", e.out);
        e.out
    };
    group(size, script).into_iter().map(check).collect()
}

/// A report without line breaks.
fn joined(report: &str) -> String {
    report.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ")
}

#[test]
fn elements_of_all_processes_are_folded_in_the_order_of_the_ranks() {
    let script = r#"
        dist.init(timeout=50)
        let (r, n) = (dist.rank(), dist.world_size())
        assert(dist.local_rank() == r and cuda.current_device() == r)
        let x = arange(6) * 1.0 + r
        for op in ["sum", "product", "min", "max", "avg"] {
            let all = dist.all_reduce(x, op=op)
            assert(all.device == x.device and equal(x, arange(6) * 1.0 + r))
            print(op, all.tolist())
        }
        # Rounded to the dtype after each step, in the order of the ranks: 2048 + 1 is 2048 in f16, 1 + 1 is not.
        let h = tensor([[2048.0, 1.0, 1.0][r], [1.0, 1.0, 2048.0][r]], dtype=f16)
        print(dist.all_reduce(h).tolist(), dist.all_reduce(i64[r, -r]).tolist())
        print(dist.all_reduce(i16[r, 300]).tolist(), dist.all_reduce([true, r == 1], op="min").tolist())
        print(dist.all_reduce(complex([1.0], [r * 1.0])).imag.tolist())
        print(dist.all_reduce(ones(2) on cpu).device, dist.all_reduce(zeros(0, 3)).shape)
        print(dist.all_reduce(ones(3, 2).t() * r).tolist())
    "#;
    let all = printed(3, script);
    let wanted = "sum [3.0, 6.0, 9.0, 12.0, 15.0, 18.0]\nproduct [0.0, 6.0, 24.0, 60.0, 120.0, 210.0]\n\
                  min [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]\nmax [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]\n\
                  avg [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]\n[2048.0, 2050.0] [3, -3]\n[3, 900] [true, false]\n[3.0]\n\
                  cpu (0, 3)\n[[3.0, 3.0, 3.0], [3.0, 3.0, 3.0]]\n";
    for out in all {
        assert_eq!(out, wanted);
    }
}

#[test]
fn elements_go_to_all_to_one_and_in_parts() {
    let script = r#"
        dist.init(timeout=50)
        let r = dist.rank()
        let x = tensor([[r, r], [10 * r, 10 * r]])
        for src in 0..2 { assert(equal(dist.broadcast(x, src=src), [[src, src], [10 * src, 10 * src]])) }
        let all = dist.all_gather(x)
        assert(len(all) == 2 and equal(all[0], [[0, 0], [0, 0]]) and equal(all[1], [[1, 1], [10, 10]]))
        let total = dist.reduce(x, dst=1, op="max")
        if r == 1 { assert(equal(total, all[1])) } else { assert(total == none) }
        assert(equal(dist.reduce_scatter(x + 1), [[[3, 3]], [[12, 12]]][r]))
        if r == 0 { dist.send(x[.., 0] + 7, 1) } else { assert(equal(dist.recv(zeros(2, dtype=i64), 0), [7, 7])) }
        if r == 1 { dist.send(f16[0.5], 0) } else { assert(equal(dist.recv((1,), 1, dtype=f16), f16[0.5])) }
        # In place, through a view too.
        let y = zeros(2, 3) + r
        dist.all_reduce_(y[.., 1])
        assert(equal(y, tensor([[r, 1, r], [r, 1, r]]) * 1.0))
        let same = dist.broadcast_(y, src=1)
        same.add_(1)
        assert(equal(y, [[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]))
        # On a side stream, after what the default one did.
        let s = Stream()
        let z = randn(100) * 0 + r
        s.wait_stream(cuda.default_stream())
        let total = with stream(s) { dist.all_reduce(z) }
        cuda.default_stream().wait_stream(s)
        assert(equal(total, ones(100)))
        dist.barrier()
        dist.destroy()
        assert(not dist.is_initialized())
        print("done")
    "#;
    assert_eq!(printed(2, script), ["done\n", "done\n"]);
}

#[test]
fn four_processes_and_much_data() {
    let script = r#"
        dist.init(timeout=50)
        let n = 1_000_003
        let x = arange(n) * 1.0 + dist.rank()
        let sum = dist.all_reduce(x)
        assert(equal(sum, arange(n) * 4.0 + 6))
        for i in 0..100 { assert(dist.all_reduce(tensor(i)).item() == 4 * i) }
        print(dist.rank())
    "#;
    assert_eq!(printed(4, script), ["0\n", "1\n", "2\n", "3\n"]);
}

#[test]
fn a_script_runs_unchanged_as_a_single_process() {
    let script = r#"
        dist.init()
        assert((dist.rank(), dist.world_size(), dist.local_rank()) == (0, 1, 0))
        let x = ones(2, 2)
        let y = dist.all_reduce(x, op="avg")
        y.add_(1)
        print(x.sum().item(), len(dist.all_gather(x)), equal(dist.reduce_scatter(x), x), dist.reduce(x).shape)
        dist.barrier()
        try { dist.send(x, 0) } catch e { print(e.message) }
    "#;
    let done = ended(start(script, &[]));
    assert_eq!(done.out, "4.0 1 true (2, 2)\ndst=0 is this process itself\n", "{}", done.err);
}

#[test]
fn mismatched_calls_are_reported_and_the_group_continues() {
    let script = r#"
        dist.init(timeout=50)
        let r = dist.rank()
        let wrong = [
            || dist.all_reduce(ones(4 + r)),
            || dist.all_reduce(ones(4, dtype=[f32, f64][r])),
            || dist.all_reduce(ones(4), op=["sum", "max"][r]),
            || dist.broadcast(ones(4), src=r),
            || dist.all_reduce(ones(4) on [cpu, cuda:1][r]),
            || if r == 0 { dist.barrier() } else { dist.all_gather(ones(4)) },
            || if r == 0 { dist.send(ones(2), 1) } else { dist.recv(zeros(3), 0) },
            || dist.send(ones(2), 1 - r),
        ]
        for f in wrong {
            try { f() } catch e { print(e.code, e.message) }
        }
        assert(equal(dist.all_reduce(ones(2)), [2.0, 2.0]))
    "#;
    let all = printed(2, script);
    assert_eq!(all[0], all[1]);
    let lines: Vec<&str> = all[0].lines().collect();
    assert!(lines.iter().all(|line| line.starts_with("E0537 rank 0 ")), "{lines:?}");
    assert_eq!(
        lines[0],
        "E0537 rank 0 called `dist.all_reduce(f32[4] on cuda, op=\"sum\")`, and rank 1 called \
         `dist.all_reduce(f32[5] on cuda, op=\"sum\")`"
    );
    assert_eq!(lines[6], "E0537 rank 0 sends f32[2] on cuda to rank 1, which receives f32[3] on cuda");
    assert_eq!(lines.len(), 8);
}

#[test]
fn an_error_of_one_process_ends_the_others_with_its_name() {
    let script =
        "dist.init(timeout=50)\nif dist.rank() == 1 { zeros(2) + zeros(3) }\ndist.all_reduce(ones(2))";
    let all = group(3, script);
    assert!(all.iter().all(|e| e.status == Some(1)), "{all:?}");
    assert!(all[1].err.contains("E0402"), "{}", all[1].err);
    for other in [0, 2] {
        let report = joined(&all[other].err);
        assert!(
            report.contains("E0535: rank 1 failed: `+` cannot broadcast the shapes [2] and [3]"),
            "{report}"
        );
        assert!(report.contains("3 │ dist.all_reduce(ones(2))") || report.contains("<-e>:3:1"), "{report}");
    }
}

#[test]
fn a_computing_process_learns_of_a_failure_once_at_its_next_wait() {
    let script = "dist.init(timeout=50)\nif dist.rank() == 1 { zeros(2) + zeros(3) }\n\
                  let x = ones(2, device=if dist.rank() == 2 { cpu } else { cuda })\n\n\
                  try { for _ in 0..1_000_000 { x = (x + 1) / 2\nx.sum().item() } } catch e { print(e.code, e.line) }\n\
                  print(x.sum())\ncuda.synchronize()";
    let all = group(3, script);
    assert!(all[1].err.contains("E0402"), "{}", all[1].err);
    for (rank, value) in [(0, "tensor(2., device='cuda:0')"), (2, "tensor(2.)")] {
        assert_eq!(all[rank].out, format!("E0535 6\n{value}\n"), "{}", all[rank].err);
    }
}

#[test]
fn a_process_that_is_killed_ends_the_others() {
    for victim in [0, 1] {
        let port = free_port();
        let script = "dist.init(timeout=50)\nprint(\"here\")\nflush()\n\
                      try { while true { dist.all_reduce(ones(2)) } } catch e { print(e.code, e.message) }\n\
                      dist.destroy()";
        let script = script.replace("flush()\n", "");
        let mut children: Vec<Child> = (0..3).map(|rank| start(&script, &torchrun(rank, 3, port))).collect();
        // Output may be buffered, so wait until the port is free again, which shows that the group has met.
        wait_until(|| TcpStream::connect(("127.0.0.1", port)).is_ok());
        wait_until(|| TcpStream::connect(("127.0.0.1", port)).is_err());
        children[victim].kill().unwrap();
        for (rank, child) in children.into_iter().enumerate() {
            let ended = ended(child);
            if rank != victim {
                let wanted = format!("here\nE0535 rank {victim} failed: its process ended\n");
                assert_eq!((ended.status, ended.out), (Some(0), wanted), "{}", ended.err);
            }
        }
    }
}

fn wait_until(mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_timeout_names_the_missing_ranks() {
    let script =
        "dist.init(timeout=1.5)\nif dist.rank() != 1 { dist.all_reduce(ones(2)) } else { sleep(20) }";
    let port = free_port();
    let mut children: Vec<Child> = (0..3).map(|rank| start(script, &torchrun(rank, 3, port))).collect();
    let mut sleeper = children.remove(1);
    for child in children {
        let report = joined(&ended(child).err);
        let wanted = "E0536: `dist.all_reduce(f32[2] on cuda, op=\"sum\")` did not end within 1.5 s: \
                      rank 1 has not reached it";
        assert!(report.contains(wanted), "{report}");
    }
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

#[test]
fn a_missing_process_is_named() {
    let (script, port) = ("dist.init(timeout=1)", free_port());
    let report = joined(&ended(start(script, &torchrun(0, 3, port))).err);
    assert!(report.contains("E0533: ranks 1 and 2 did not connect within 1 s"), "{report}");
    let report = joined(&ended(start(script, &torchrun(2, 3, port))).err);
    let wanted = format!("E0533: rank 0 did not answer at `127.0.0.1:{port}` within 1 s");
    assert!(report.contains(&wanted), "{report}");
}

#[test]
fn variables_that_make_no_sense_are_named() {
    let set = |pairs: &[(&'static str, &str)]| -> Vec<(&'static str, String)> {
        pairs.iter().map(|(name, value)| (*name, value.to_string())).collect()
    };
    for (variables, message) in [
        (set(&[("RANK", "0")]), "E0530: `RANK` is set, but `WORLD_SIZE` is not"),
        (set(&[("RANK", "5"), ("WORLD_SIZE", "2")]), "E0530: `RANK=5` is not a rank of a group"),
        (set(&[("RANK", "first"), ("WORLD_SIZE", "2")]), "E0530: `RANK=first` is not a number"),
        (set(&[("RANK", "0"), ("WORLD_SIZE", "2")]), "E0530: `RANK` is set, but `MASTER_ADDR` is not"),
        (
            set(&[("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "4")]),
            "E0531: the process of local rank 4 needs `cuda:4`, but there are 4 devices here",
        ),
    ] {
        let ended = ended(start("dist.init()", &variables));
        let report = joined(&ended.err);
        assert!(ended.status == Some(1) && report.contains(message), "{report}");
    }
    let mut variables = torchrun(0, 2, free_port());
    variables[3].1 = "no-such-machine.invalid".into();
    let report = joined(&ended(start("dist.init(timeout=1)", &variables)).err);
    assert!(report.contains("E0533: `no-such-machine.invalid` is not a known host"), "{report}");
}

#[test]
fn processes_that_do_not_fit_together_are_refused() {
    let port = free_port();
    let script = "dist.init(timeout=20)";
    let first = start(script, &torchrun(0, 3, port));
    let mut other = torchrun(1, 2, port);
    let report = joined(&ended(start(script, &other)).err);
    assert!(report.contains("E0530: this process says that the group has 2 processes"), "{report}");
    other = torchrun(1, 3, port);
    other.push(("TORCHELASTIC_RUN_ID", "another".into()));
    let report = joined(&ended(start(script, &other)).err);
    assert!(report.contains("E0534: rank 1 found at `127.0.0.1:"), "{report}");
    assert!(report.contains("another group uses this address"), "{report}");
    let mut twice: Vec<Child> = (0..2).map(|_| start(script, &torchrun(1, 3, port))).collect();
    // One of them takes the rank, and the other ends.
    wait_until(|| twice.iter_mut().any(|child| child.try_wait().unwrap().is_some()));
    let last = start(script, &torchrun(2, 3, port));
    let twice: Vec<Ended> = twice.into_iter().map(ended).collect();
    let refused = twice.iter().filter(|e| e.status == Some(1)).count();
    assert_eq!(refused, 1, "{twice:?}");
    assert!(
        twice.iter().any(|e| joined(&e.err).contains("E0530: there are two processes of rank 1")),
        "{twice:?}"
    );
    assert_eq!((ended(first).status, ended(last).status), (Some(0), Some(0)));
}

/// Listens, and sends this answer to every connection; returns the port.
fn stranger(answer: &'static [u8]) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.write_all(answer).ok();
            kept.push(stream);
        }
    });
    port
}

#[test]
fn a_stranger_at_the_port_is_told_from_rank_0() {
    for (answer, said) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "another program listens there"),
        (b"", "a program that does not answer listens there"),
    ] {
        let port = stranger(answer);
        let report = joined(&ended(start("dist.init(timeout=3)", &torchrun(1, 2, port))).err);
        assert!(report.contains(&format!("E0534: rank 1 found at `127.0.0.1:{port}`: {said}")), "{report}");
        let report = joined(&ended(start("dist.init(timeout=3)", &torchrun(0, 2, port))).err);
        let wanted =
            format!("E0534: rank 0 cannot listen at `127.0.0.1:{port}`: another program already does");
        assert!(report.contains(&wanted), "{report}");
    }
}

#[test]
fn strangers_that_connect_do_not_disturb_the_meeting() {
    let port = free_port();
    let script = "dist.init(timeout=50)\nprint(dist.all_reduce(ones(1)).item())";
    let first = start(script, &torchrun(0, 2, port));
    wait_until(|| TcpStream::connect(("127.0.0.1", port)).is_ok());
    let mut silent = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut loud = TcpStream::connect(("127.0.0.1", port)).unwrap();
    loud.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(loud.read(&mut [0; 16]).unwrap_or(0), 0, "nothing is said to a stranger");
    let second = start(script, &torchrun(1, 2, port));
    for child in [first, second] {
        let ended = ended(child);
        assert_eq!((ended.status, ended.out.as_str()), (Some(0), "2.0\n"), "{}", ended.err);
    }
    silent.write_all(b"x").ok();
}

#[test]
fn under_an_agent_that_has_the_port_the_next_free_one_serves() {
    // The agent's store is at the port, and another program at the next one.
    let (port, _agent, _next) = loop {
        let agent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = agent.local_addr().unwrap().port();
        if port < 65_000
            && let Ok(next) = TcpListener::bind(("127.0.0.1", port + 1))
        {
            break (port, agent, next);
        }
    };
    let script = "dist.init(timeout=50)\nprint(dist.all_reduce(ones(1)).item())";
    let children: Vec<Child> = (0..2)
        .map(|rank| {
            let mut variables = torchrun(rank, 2, port);
            variables.push(("TORCHELASTIC_USE_AGENT_STORE", "True".into()));
            start(script, &variables)
        })
        .collect();
    for child in children {
        let ended = ended(child);
        assert_eq!((ended.status, ended.out.as_str()), (Some(0), "2.0\n"), "{}", ended.err);
    }
}

#[test]
fn other_launchers_start_groups_too() {
    let port = free_port().to_string();
    let of = |names: [&'static str; 4], rank: usize| {
        let mut variables = vec![
            (names[0], rank.to_string()),
            (names[1], "2".into()),
            (names[2], rank.to_string()),
            ("MASTER_PORT", port.clone()),
        ];
        variables.push(match names[3] {
            "MASTER_ADDR" => ("MASTER_ADDR", "localhost".into()),
            "SLURM_LAUNCH_NODE_IPADDR" => (names[3], "127.0.0.1".into()),
            name => (name, "2".into()),
        });
        variables
    };
    for names in [
        [
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_COMM_WORLD_LOCAL_RANK",
            "OMPI_COMM_WORLD_LOCAL_SIZE",
        ],
        ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MASTER_ADDR"],
        ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_LAUNCH_NODE_IPADDR"],
    ] {
        let script = "dist.init(timeout=50)\nprint(dist.all_reduce(ones(1)).device)";
        let children: Vec<Child> = (0..2).map(|rank| start(script, &of(names, rank))).collect();
        for (rank, child) in children.into_iter().enumerate() {
            let ended = ended(child);
            assert_eq!((ended.status, ended.out), (Some(0), format!("cuda:{rank}\n")), "{}", ended.err);
        }
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_a_wait_and_the_others() {
    let port = free_port();
    let script = "dist.init(timeout=50)\nif dist.rank() == 0 { dist.all_reduce(ones(2)) } else { sleep(1)\n dist.recv(ones(2), 0) }";
    let children: Vec<Child> = (0..2).map(|rank| start(script, &torchrun(rank, 2, port))).collect();
    wait_until(|| TcpStream::connect(("127.0.0.1", port)).is_ok());
    wait_until(|| TcpStream::connect(("127.0.0.1", port)).is_err());
    std::thread::sleep(Duration::from_millis(300));
    interrupt(&children[0]);
    let mut ended = children.into_iter().map(ended);
    let (first, second) = (ended.next().unwrap(), ended.next().unwrap());
    assert_eq!(first.status, Some(130), "{}", first.err);
    assert!(joined(&second.err).contains("E0535: rank 0 failed: interrupted"), "{}", second.err);
}

#[cfg(unix)]
fn interrupt(child: &Child) {
    let id = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
}

#[test]
fn an_embedded_session_joins_a_group_only_if_allowed() {
    // Without a launcher, no permission is needed.
    let mut engine = runnel::Engine::builder().backend(runnel::Backend::Emu).build().unwrap();
    assert_eq!(engine.eval::<i64>("dist.init()\ndist.world_size()").unwrap(), 1);
    assert_eq!(engine.eval::<()>("dist.init()").unwrap_err().code().id, "E0532");
    engine.eval::<()>("dist.destroy()\ndist.destroy()").unwrap();
    assert_eq!(engine.eval::<()>("dist.rank()").unwrap_err().code().id, "E0532");
}

/// Runs a script of `tests/distributed`, which also run on GPUs.
fn file(name: &str, size: usize) -> Vec<Ended> {
    let path = format!("{}/tests/distributed/{name}.rnl", env!("CARGO_MANIFEST_DIR"));
    let port = free_port();
    let child = |rank| program(&["--devices", "4", &path], &torchrun(rank, size, port)).spawn().unwrap();
    let children: Vec<Child> = (0..size).map(child).collect();
    children.into_iter().map(ended).collect()
}

#[test]
fn scripts_for_any_number_of_processes_pass() {
    for (name, sizes) in [
        ("collectives", &[1, 2, 3, 4][..]),
        ("gradients", &[1, 2, 3]),
        ("buckets", &[1, 2, 3]),
        ("trouble", &[2, 4]),
        ("late", &[2]),
    ] {
        for &size in sizes {
            for (rank, ended) in file(name, size).into_iter().enumerate() {
                assert_eq!(ended.status, Some(0), "{name}, rank {rank} of {size}: {}", ended.err);
            }
        }
    }
    for (rank, ended) in file("failing", 3).into_iter().enumerate() {
        let wanted = if rank == 1 { "E0902" } else { "E0535: rank 1 failed: the second gives up" };
        assert!(ended.status == Some(1) && joined(&ended.err).contains(wanted), "{}", ended.err);
    }
}

/// Three layers, each with its own bucket if buckets have 300 bytes.
const LAYERS: &str = "import nn\nimport parallel\ndist.init(timeout=50)\nlet x = ones(4, 8, requires_grad=true)\n\
    let made = || nn.sequential(nn.linear(8, 8), tanh, nn.linear(8, 8), tanh, nn.linear(8, 8))\n";

#[test]
fn buckets_are_sent_during_the_backward_pass() {
    let folder = tempfile::tempdir().unwrap();
    let trace = |rank: usize| folder.path().join(format!("{rank}.json"));
    // The kernels and copies of a process in a pass, in order.
    let names = |cap: &str| -> Vec<String> {
        let script = format!(
            "{LAYERS}let net = parallel.distributed(made(), bucket_cap_mb={cap})\n\
             net(x).sum().backward()\nlet loss = net(x).sum()\ncuda.synchronize()\n\
             with profile(\"{}/{{dist.rank()}}.json\") {{ loss.backward() }}",
            folder.path().display()
        );
        printed(2, &script);
        let text = std::fs::read_to_string(trace(0)).unwrap();
        let line = |line: &str| {
            let (kind, name) = (line.split("\"ph\":\"").nth(1)?, line.split("\"name\":\"").nth(1)?);
            (kind.starts_with('X')).then(|| name.split('"').next().unwrap_or("").to_string())
        };
        text.lines().filter_map(line).collect()
    };
    let at = |names: &[String], name: &str| -> Vec<usize> {
        names.iter().enumerate().filter(|(_, n)| *n == name).map(|(i, _)| i).collect()
    };
    let one = names("25");
    assert_eq!((at(&one, "copy to host").len(), at(&one, "cat").len()), (1, 1), "{one:?}");
    let three = names("200 / 1MiB");
    let (sent, products) = (at(&three, "copy to host"), at(&three, "matmul"));
    assert_eq!((sent.len(), products.len(), at(&three, "cat").len()), (3, 6, 3), "{three:?}");
    assert!(sent[0] < products[3] && sent[1] < products[5], "{three:?}");
}

#[test]
fn a_process_that_is_lost_in_a_backward_pass_is_named() {
    let port = free_port();
    let script = format!(
        "{LAYERS}let net = parallel.distributed(made(), bucket_cap_mb=200 / 1MiB)\n\
         try {{ while true {{ net(x).sum().backward() }} }} catch e {{ print(e.code, e.message) }}\n\
         print(x.sum().item())"
    );
    let mut children: Vec<Child> = (0..2).map(|rank| start(&script, &torchrun(rank, 2, port))).collect();
    wait_until(|| TcpStream::connect(("127.0.0.1", port)).is_ok());
    wait_until(|| TcpStream::connect(("127.0.0.1", port)).is_err());
    std::thread::sleep(Duration::from_millis(300));
    children[1].kill().unwrap();
    let left = ended(children.remove(0));
    assert_eq!(left.out, "E0535 rank 1 failed: its process ended\n32.0\n", "{}", left.err);
    ended(children.remove(0));
    // A process that fails in a hook, with the first buckets in flight.
    let fails = LAYERS.to_string()
        + "fn watched(h) {\n h.register_hook(|g| { if dist.rank() == 1 { throw \"no more\" } })\n h\n}\n\
           let net = nn.sequential(nn.linear(8, 8), tanh, watched, nn.linear(8, 8), nn.linear(8, 8))\n\
           parallel.distributed(net, bucket_cap_mb=200 / 1MiB)(x).sum().backward()";
    let all = group(2, &fails);
    let told = joined(&all[0].err);
    assert!(told.contains("E0535: rank 1 failed: no more") && told.contains("backward()"), "{told}");
    assert!(joined(&all[1].err).contains("no more"), "{}", all[1].err);
}

#[test]
fn examples_run_in_two_processes_as_in_one() {
    for name in ["20_distributed", "26_train_distributed"] {
        let file = format!("{}/examples/{name}.rnl", env!("CARGO_MANIFEST_DIR"));
        let data = format!("{}/examples/digits.npz", env!("CARGO_MANIFEST_DIR"));
        let args = if name.starts_with("26") { vec![&*file, "--data", &data] } else { vec![&*file] };
        let alone = ended(program(&args, &[]).spawn().unwrap());
        assert_eq!(alone.status, Some(0), "{}", alone.err);
        let port = free_port();
        let children: Vec<Child> =
            (0..2).map(|rank| program(&args, &torchrun(rank, 2, port)).spawn().unwrap()).collect();
        let all: Vec<Ended> = children.into_iter().map(ended).collect();
        assert!(all.iter().all(|e| e.status == Some(0)), "{all:?}");
        // The losses are those of one process with the whole batch, up to rounding.
        let losses = |out: &str| -> Vec<f64> {
            let lines = BufReader::new(out.as_bytes()).lines().map(|line| line.unwrap());
            lines.filter_map(|line| line.split_once("loss ")?.1.parse().ok()).collect()
        };
        let (one, two) = (losses(&alone.out), losses(&all[0].out));
        assert!(
            one.len() >= 3 && one.len() == two.len() && all[1].out.is_empty(),
            "{one:?} {two:?} {}",
            all[1].out
        );
        assert!(one.iter().zip(&two).all(|(a, b)| (a - b).abs() <= 1e-3), "{one:?} {two:?}");
    }
}

#[test]
fn a_plan_leaves_the_group_as_a_run_does() {
    let folder = tempfile::tempdir().unwrap();
    let with_plan = |planned: &str, other: &str| {
        let (port, path) = (free_port(), folder.path().join("planned.rnl"));
        std::fs::write(&path, planned).unwrap();
        let plan = program(&["plan", path.to_str().unwrap()], &torchrun(0, 2, port)).spawn().unwrap();
        let other = start(other, &torchrun(1, 2, port));
        (ended(plan), ended(other))
    };
    let join = "dist.init(timeout=50)\n";
    let (plan, other) = with_plan(join, join);
    assert_eq!((plan.status, plan.out.as_str()), (Some(0), "no kernel is launched\n"), "{}", plan.err);
    assert_eq!((other.status, other.err.as_str()), (Some(0), ""));
    let (plan, other) = with_plan(
        &format!("{join}throw \"no data here\""),
        &format!("{join}try {{ dist.barrier() }} catch e {{ print(e.message) }}"),
    );
    assert_eq!(plan.status, Some(1));
    assert!(other.out.contains("no data here"), "{}\n{}", other.out, other.err);
}
