//! NCCL between the devices of one process, one thread per device: tests the driver side of what several
//! processes do. Skipped with a note if the library or a second device is missing.

#![cfg(test)]

use super::*;
use crate::base::Span;
use crate::driver::links::{Communicator, Exchange, Fold, GroupState, JoinParams, Pattern};
use std::time::{Duration, Instant};

/// One thread's state.
struct End {
    gpu: Arc<CudaDriver>,
    group_state: Arc<GroupState>,
    links: Arc<dyn Communicator>,
    data: Ptr,
    rank: usize,
}

const COUNT: usize = 1000;

impl End {
    fn queue(&self, pattern: Pattern) -> crate::base::Result<()> {
        let (source, target) = (self.data, self.data);
        let span = Span::new(1, 2);
        let work = Exchange { pattern, source, target, count: COUNT, dtype: Dtype::F32, name: "test", span };
        self.links.queue(&work, 0)
    }

    fn fill(&self, value: f32) {
        self.gpu.fill(self.data, u64::from(value.to_bits()), 4, COUNT as u64, 0).unwrap();
    }

    fn values(&self) -> Vec<f32> {
        let mut values = vec![0f32; COUNT];
        let bytes = 4 * COUNT as u64;
        self.gpu.copy(values.as_mut_ptr() as u64, self.data, bytes, CopyKind::DeviceToHost, 0).unwrap();
        self.gpu.stream_synchronize(0).unwrap();
        values
    }
}

/// Runs code on one thread per device, all linked; false if that is impossible.
fn linked(size: usize, timeout: Duration, code: impl Fn(&End) + Sync) -> bool {
    let Some(first) = device() else { return false };
    if (super::super::probe().devices as usize) < size {
        skip("several GPUs", format!("it needs {size} devices"));
        return false;
    }
    let id = match first.links().unwrap().id() {
        Ok(id) => id,
        Err(error) => {
            skip("NCCL", error);
            return false;
        }
    };
    let run = |rank: usize| {
        let gpu = open_device(rank as u32).unwrap();
        let group_state = Arc::new(GroupState::default());
        let links = gpu
            .links()
            .unwrap()
            .join(JoinParams { id: &id, rank, size, timeout, group_state: group_state.clone() })
            .unwrap();
        let data = gpu.alloc(4 * COUNT as u64).unwrap();
        let end = End { gpu, group_state, links, data, rank };
        code(&end);
        end.gpu.synchronize().unwrap();
        end.gpu.free(data, 4 * COUNT as u64);
    };
    std::thread::scope(|scope| {
        (0..size).for_each(|rank| drop(scope.spawn(move || run(rank))));
    });
    true
}

#[test]
fn a_single_device_links_to_itself() {
    linked(1, Duration::from_secs(30), |end| {
        end.fill(3.0);
        for _ in 0..100 {
            end.queue(Pattern::AllReduce(Fold::Sum)).unwrap();
            end.queue(Pattern::Broadcast(0)).unwrap();
        }
        end.links.finish();
        assert_eq!(end.values(), vec![3.0; COUNT]);
        assert!(!end.group_state.is_failed());
        end.links.close();
        assert!(end.queue(Pattern::AllGather).is_err());
    });
}

#[test]
fn two_devices_exchange_data() {
    linked(2, Duration::from_secs(30), |end| {
        end.fill(1.0 + end.rank as f32);
        end.queue(Pattern::AllReduce(Fold::Sum)).unwrap();
        assert_eq!(end.values(), vec![3.0; COUNT]);
        end.fill(1.0 + end.rank as f32);
        end.queue(Pattern::AllReduce(Fold::Avg)).unwrap();
        assert_eq!(end.values(), vec![1.5; COUNT]);
        end.fill(1.0 + end.rank as f32);
        end.queue(Pattern::Broadcast(1)).unwrap();
        assert_eq!(end.values(), vec![2.0; COUNT]);
        end.fill(end.rank as f32);
        end.queue(if end.rank == 1 { Pattern::Send(0) } else { Pattern::Receive(1) }).unwrap();
        assert_eq!(end.values(), vec![1.0; COUNT]);
        end.fill(end.rank as f32);
        let bytes = 4 * COUNT as u64;
        let target = end.gpu.alloc(bytes).unwrap();
        let (source, span) = (end.data, Span::new(1, 2));
        let pattern = Pattern::AllToAll;
        let work = Exchange { pattern, source, target, count: COUNT, dtype: Dtype::F32, name: "test", span };
        end.links.queue(&work, 0).unwrap();
        end.gpu.copy(end.data, target, bytes, CopyKind::DeviceToDevice, 0).unwrap();
        assert_eq!(end.values(), [vec![0.0; COUNT / 2], vec![1.0; COUNT / 2]].concat());
        end.gpu.free(target, bytes);
        end.links.finish();
        end.links.close();
    });
}

#[test]
fn a_collective_without_its_partner_ends_at_the_timeout() {
    linked(2, Duration::from_secs(2), |end| {
        end.fill(1.0);
        end.queue(Pattern::AllReduce(Fold::Sum)).unwrap();
        assert_eq!(end.values(), vec![2.0; COUNT]);
        let start = Instant::now();
        if end.rank == 0 {
            end.queue(Pattern::AllReduce(Fold::Sum)).unwrap();
            end.gpu.stream_synchronize(0).unwrap();
            let error = end.group_state.check().unwrap_err();
            assert_eq!(error.code().id, "E0536", "{error}");
            assert!(start.elapsed() < Duration::from_secs(20));
            assert!(end.queue(Pattern::AllReduce(Fold::Sum)).is_err());
            // The device still works.
            end.fill(7.0);
            assert_eq!(end.values(), vec![7.0; COUNT]);
        } else {
            std::thread::sleep(Duration::from_secs(4));
            end.links.abort();
        }
    });
}
