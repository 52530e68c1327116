//! The number of processes, the rank of this one and the meeting address, read from the launcher's
//! environment variables.
//!
//! Independent of sockets and devices. Sources: the environment variables of `torchrun`
//! (`torch.distributed.run`), Open MPI's `mpirun`, Hydra (MPICH, Intel MPI) and `srun`.

use super::error;
use crate::base::Result;

/// This process's place among the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct World {
    /// The rank of this process, from 0.
    pub rank: usize,
    /// The number of processes; at least 1.
    pub size: usize,
    /// The rank of this process on its machine.
    pub local_rank: usize,
    /// The rendezvous of the processes; `None` for a single process.
    pub meeting: Option<Meeting>,
}

/// The meeting address of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// Name or address of rank 0's machine.
    pub host: String,
    /// The first port that rank 0 tries.
    pub port: u16,
    /// Number of ports to try; more than one when something else uses the first.
    pub ports: u16,
    /// Identifies one start: equal for all its processes, different for other groups.
    pub id: String,
}

/// The variables of one launcher.
struct Names {
    rank: &'static str,
    size: &'static [&'static str],
    local: &'static [&'static str],
    /// The number of processes on this machine.
    here: &'static str,
    /// The id of the start: a job or a run.
    job: &'static [&'static str],
}

const TORCHRUN: Names = Names {
    rank: "RANK",
    size: &["WORLD_SIZE"],
    local: &["LOCAL_RANK"],
    here: "LOCAL_WORLD_SIZE",
    job: &["TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"],
};

const LAUNCHERS: [Names; 3] = [
    Names {
        rank: "OMPI_COMM_WORLD_RANK",
        size: &["OMPI_COMM_WORLD_SIZE"],
        local: &["OMPI_COMM_WORLD_LOCAL_RANK"],
        here: "OMPI_COMM_WORLD_LOCAL_SIZE",
        job: &["OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"],
    },
    Names {
        rank: "PMI_RANK",
        size: &["PMI_SIZE"],
        local: &["MPI_LOCALRANKID", "PMI_LOCAL_RANK"],
        here: "MPI_LOCALNRANKS",
        job: &["PMI_ID_JOB", "PMI_JOBID"],
    },
    Names {
        rank: "SLURM_PROCID",
        // The first is the step's size; the second the job's, which may be larger.
        size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        local: &["SLURM_LOCALID"],
        here: "",
        job: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
    },
];

/// The default port of `torch.distributed`.
const PORT: u16 = 29_500;

/// Number of ports to try when the launcher itself uses the first.
const NEXT_PORTS: u16 = 16;

impl World {
    /// A single process.
    pub const ALONE: World = World { rank: 0, size: 1, local_rank: 0, meeting: None };

    /// Reads the variables through `get`; `None` when no launcher has set any.
    ///
    /// # Errors
    /// E0530 for variables that are missing, malformed or contradictory.
    pub fn from_variables(get: &dyn Fn(&str) -> Option<String>) -> Result<Option<World>> {
        let get = |name: &str| get(name).filter(|value| !value.trim().is_empty());
        if get("RANK").is_some() || get("WORLD_SIZE").is_some() {
            return World::read(&get, &TORCHRUN).map(Some);
        }
        match LAUNCHERS.iter().find(|names| get(names.rank).is_some()) {
            Some(names) => World::read(&get, names).map(Some),
            None => Ok(None),
        }
    }

    fn read(get: &dyn Fn(&str) -> Option<String>, names: &Names) -> Result<World> {
        let size_name = *names.size.iter().find(|name| get(name).is_some()).unwrap_or(&names.size[0]);
        let number = |name: &str, other: &str| -> Result<usize> {
            let text = get(name).ok_or_else(|| error::setting_missing(name, other))?;
            let number = text.trim().parse::<u32>();
            number.map(|n| n as usize).map_err(|_| error::setting_not_number(name, &text, "a number"))
        };
        let rank = number(names.rank, size_name)?;
        let size = number(size_name, names.rank)?;
        if rank >= size {
            return Err(error::rank_out_of_range(names.rank, rank, size_name, size));
        }
        let local = names.local.iter().find(|name| get(name).is_some());
        let local_rank = local.map_or(Ok(rank), |name| number(name, names.rank))?;
        let meeting = if size == 1 { None } else { Some(Meeting::read(get, names, size)?) };
        Ok(World { rank, size, local_rank, meeting })
    }
}

impl Meeting {
    fn read(get: &dyn Fn(&str) -> Option<String>, names: &Names, size: usize) -> Result<Meeting> {
        let is_plain = names.rank == TORCHRUN.rank;
        let here = get(names.here).and_then(|text| text.trim().parse::<usize>().ok());
        // Read in every SLURM job, independent of the launcher.
        let job = get("SLURM_JOB_ID");
        let one_node = get("SLURM_STEP_NUM_NODES").is_some_and(|count| count.trim() == "1");
        let on_one_machine = here == Some(size) || one_node;
        let host = match get("MASTER_ADDR") {
            Some(host) => Some(host.trim().to_string()),
            None if is_plain => None,
            None if on_one_machine => Some("127.0.0.1".into()),
            None => slurm_host(get),
        };
        let host = host.ok_or_else(|| error::setting_missing("MASTER_ADDR", names.rank))?;
        let port = match (get("MASTER_PORT"), job) {
            (Some(text), _) => match text.trim().parse::<u16>() {
                Ok(port) if port > 0 => port,
                _ => return Err(error::setting_not_number("MASTER_PORT", &text, "a port, from 1 to 65535")),
            },
            (None, _) if is_plain => return Err(error::setting_missing("MASTER_PORT", names.rank)),
            (None, Some(job)) => slurm_port(&job),
            (None, None) => PORT,
        };
        // The `torchrun` agent itself listens at the port; the following ports are free.
        let is_taken =
            get("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let (port, ports) = match is_taken {
            true => {
                (port.checked_add(1).unwrap_or(port - NEXT_PORTS), NEXT_PORTS.min(u16::MAX - port).max(1))
            }
            false => (port, 1),
        };
        let start: Vec<String> = names.job.iter().filter_map(|name| get(name)).collect();
        let id = format!("{}/{}", names.rank, start.join("."));
        Ok(Meeting { host, port, ports, id })
    }
}

/// The machine of a step's first task: the first of the list, or the machine that started the step.
fn slurm_host(get: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let list = get("SLURM_STEP_NODELIST").or_else(|| get("SLURM_JOB_NODELIST"));
    list.and_then(|list| first_host(&list)).or_else(|| get("SLURM_LAUNCH_NODE_IPADDR"))
}

/// The first name of a list such as `node[01-04,7],gpu3`: `node01`.
fn first_host(list: &str) -> Option<String> {
    let end = list.find([',', '[']).unwrap_or(list.len());
    let name = &list[..end];
    let whole = match list[end..].strip_prefix('[') {
        None => name.to_string(),
        Some(numbers) => format!("{name}{}", &numbers[..numbers.find(['-', ',', ']'])?]),
    };
    (!whole.is_empty()).then_some(whole)
}

/// A port derived from the job, below the ephemeral ports.
fn slurm_port(job: &str) -> u16 {
    let number =
        job.bytes().filter(u8::is_ascii_digit).fold(0u32, |n, b| (n * 10 + u32::from(b - b'0')) % 20_000);
    12_000 + number as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &str) -> Result<Option<World>> {
        let find = |name: &str| {
            let pairs = variables.split_whitespace().filter_map(|pair| pair.split_once('='));
            pairs.rev().find(|(key, _)| *key == name).map(|(_, value)| value.to_string())
        };
        World::from_variables(&find)
    }

    fn code(variables: &str) -> (&'static str, String) {
        let error = read(variables).unwrap_err();
        (error.code().id, error.message().to_string())
    }

    #[test]
    fn without_a_launcher_there_is_no_group() {
        assert_eq!(read("MASTER_ADDR=a MASTER_PORT=7 LOCAL_RANK=1").unwrap(), None);
        assert_eq!(read("RANK= WORLD_SIZE=").unwrap(), None);
    }

    #[test]
    fn torchrun_sets_five_variables() {
        let world =
            read("RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 MASTER_ADDR=node7 MASTER_PORT=1234").unwrap().unwrap();
        assert_eq!((world.rank, world.size, world.local_rank), (3, 8, 1));
        let meeting = world.meeting.unwrap();
        assert_eq!((meeting.host.as_str(), meeting.port, meeting.ports), ("node7", 1234, 1));
        let with_store = "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=a MASTER_PORT=1234 \
                          TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RUN_ID=x";
        let meeting = read(with_store).unwrap().unwrap().meeting.unwrap();
        assert_eq!((meeting.port, meeting.ports, meeting.id.as_str()), (1235, 16, "RANK/x"));
        let world = read("RANK=0 WORLD_SIZE=1 MASTER_ADDR=a").unwrap().unwrap();
        assert_eq!((world.local_rank, world.meeting), (0, None));
    }

    #[test]
    fn other_launchers_use_other_variables() {
        let world = read(
            "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 \
             OMPI_COMM_WORLD_LOCAL_SIZE=4",
        );
        let world = world.unwrap().unwrap();
        assert_eq!((world.rank, world.size, world.local_rank), (1, 4, 1));
        let meeting = world.meeting.unwrap();
        assert_eq!((meeting.host.as_str(), meeting.port), ("127.0.0.1", PORT));
        let two_machines = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2";
        assert_eq!(code(two_machines).1, "`OMPI_COMM_WORLD_RANK` is set, but `MASTER_ADDR` is not");
        let world = read("PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=0 MASTER_ADDR=a").unwrap().unwrap();
        assert_eq!((world.rank, world.size, world.local_rank), (1, 2, 0));
        let slurm = "SLURM_PROCID=5 SLURM_NTASKS=8 SLURM_LOCALID=1 SLURM_JOB_ID=123456 SLURM_STEP_ID=0 \
                     SLURM_STEP_NODELIST=gpu[07-10],x SLURM_LAUNCH_NODE_IPADDR=10.0.0.1";
        let world = read(slurm).unwrap().unwrap();
        let meeting = world.meeting.unwrap();
        assert_eq!((world.rank, world.size, world.local_rank), (5, 8, 1));
        assert_eq!((meeting.host.as_str(), meeting.port), ("gpu07", 12_000 + 3_456));
        let meeting = read("SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_LAUNCH_NODE_IPADDR=10.0.0.1");
        assert_eq!(meeting.unwrap().unwrap().meeting.unwrap().host, "10.0.0.1");
        // Hydra in a SLURM job: Hydra's ranks, the job's machines.
        let world = read(
            "PMI_RANK=3 PMI_SIZE=4 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_JOB_ID=7 SLURM_JOB_NODELIST=a[1-2]",
        );
        let world = world.unwrap().unwrap();
        let meeting = world.meeting.unwrap();
        assert_eq!((world.rank, world.size, meeting.host.as_str(), meeting.port), (3, 4, "a1", 12_007));
        // A step of two tasks in a job of eight.
        let world = read("SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=1");
        assert_eq!(world.unwrap().unwrap().size, 2);
    }

    #[test]
    fn launcher_errors_name_the_variable() {
        for (variables, message) in [
            ("RANK=1", "`RANK` is set, but `WORLD_SIZE` is not"),
            ("WORLD_SIZE=2", "`WORLD_SIZE` is set, but `RANK` is not"),
            ("RANK=1 WORLD_SIZE=2", "`RANK` is set, but `MASTER_ADDR` is not"),
            ("RANK=1 WORLD_SIZE=2 MASTER_ADDR=a", "`RANK` is set, but `MASTER_PORT` is not"),
            ("RANK=one WORLD_SIZE=2", "`RANK=one` is not a number"),
            ("RANK=-1 WORLD_SIZE=2", "`RANK=-1` is not a number"),
            ("RANK=5 WORLD_SIZE=2", "`RANK=5` is not a rank of a group of `WORLD_SIZE=2` processes"),
            ("RANK=0 WORLD_SIZE=0", "`RANK=0` is not a rank of a group of `WORLD_SIZE=0` processes"),
            (
                "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=99999",
                "`MASTER_PORT=99999` is not a port, from 1 to 65535",
            ),
            ("RANK=0 WORLD_SIZE=1 LOCAL_RANK=x", "`LOCAL_RANK=x` is not a number"),
        ] {
            assert_eq!(code(variables), ("E0530", message.to_string()), "{variables}");
        }
    }

    #[test]
    fn the_first_host_of_a_nodelist_is_found() {
        for (list, first) in [("a", "a"), ("a,b", "a"), ("n[1-3]", "n1"), ("n[07,9],x", "n07")] {
            assert_eq!(first_host(list).as_deref(), Some(first), "{list}");
        }
        assert_eq!(first_host(""), None);
        assert_eq!(first_host("n["), None);
    }
}
