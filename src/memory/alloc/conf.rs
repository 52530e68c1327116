//! The allocators' settings: `RUNNEL_ALLOC_CONF`, with PyTorch's keys. `docs/memory.md` describes each key.

use super::{LARGE_SEGMENT, MIN_BLOCK};
use crate::base::{Error, Result, suggest};
use crate::driver::error::bad_alloc_conf;

/// The number of powers of two, starting at 1 MiB, with their own number of divisions.
const INTERVALS: usize = 16;
/// Sizes below 2^20 share the first number.
const FIRST_INTERVAL: u32 = 20;
/// The maximum of `pinned_num_register_threads`. Source: `pinned_max_register_threads`.
const MOST_THREADS: u64 = 128;

/// The settings of the device and page-locked memory allocators.
///
/// Sample: `max_split_size_mb:128,roundup_power2_divisions:[256:1,512:2,>:4]`.
#[derive(Clone, PartialEq, Debug)]
pub struct AllocConf {
    /// Whether segments grow in place on devices that can map memory; `None` when unset.
    pub expandable_segments: Option<bool>,
    /// Blocks of at least this many bytes are not split.
    pub max_split_size: Option<u64>,
    /// Largest excess in bytes of an unsplit block over its request.
    pub max_non_split_rounding: u64,
    /// Steps between consecutive powers of two for rounding sizes, per power from 1 MiB on; 0 for no
    /// rounding.
    pub roundup_power2_divisions: [u64; INTERVALS],
    /// The share of the memory fraction above which old segments are returned first.
    pub garbage_collection_threshold: Option<f64>,
    /// Bytes per segment of the large pool.
    pub large_segment: u64,
    /// The memory fraction of every device.
    pub per_process_memory_fraction: Option<f64>,
    /// Page-locked requests above this many bytes are not rounded up.
    pub pinned_max_round: Option<u64>,
    /// Page-locked blocks above this many bytes are not cached.
    pub pinned_max_cached: Option<u64>,
}

impl Default for AllocConf {
    fn default() -> AllocConf {
        AllocConf {
            expandable_segments: None,
            max_split_size: None,
            max_non_split_rounding: LARGE_SEGMENT,
            roundup_power2_divisions: [0; INTERVALS],
            garbage_collection_threshold: None,
            large_segment: LARGE_SEGMENT,
            per_process_memory_fraction: None,
            pinned_max_round: None,
            pinned_max_cached: None,
        }
    }
}

/// Applies a key's value to the settings, or rejects the value.
type Set = fn(&mut AllocConf, &str) -> std::result::Result<(), Fault>;

/// The reason a value is rejected.
enum Fault {
    /// The expected value.
    Expected(&'static str),
    /// A specific error.
    Other(Error),
}

/// Every key that PyTorch knows. Keys that only validate their value have no effect here.
const KEYS: &[(&str, Set)] = &[
    ("backend", |_, v| one_of(v, &["native", "cudaMallocAsync"], "`native` or `cudaMallocAsync`")),
    ("expandable_segments", |conf, v| {
        conf.expandable_segments = Some(boolean(v)?);
        Ok(())
    }),
    ("large_segment_size_mb", |conf, v| {
        conf.large_segment = megabytes(v, 2, "a whole number from 2 on")?;
        Ok(())
    }),
    ("max_split_size_mb", |conf, v| {
        conf.max_split_size = Some(megabytes(v, 20, "a whole number from 20 on")?);
        Ok(())
    }),
    ("max_non_split_rounding_mb", |conf, v| {
        conf.max_non_split_rounding = megabytes(v, 1, "a whole number from 1 on")?;
        Ok(())
    }),
    ("roundup_power2_divisions", |conf, v| {
        conf.roundup_power2_divisions = divisions(v).map_err(Fault::Other)?;
        Ok(())
    }),
    ("garbage_collection_threshold", |conf, v| {
        let threshold = fraction(v).filter(|t| *t > 0.0 && *t < 1.0);
        conf.garbage_collection_threshold = Some(threshold.ok_or(Fault::Expected("between 0 and 1"))?);
        Ok(())
    }),
    ("per_process_memory_fraction", |conf, v| {
        let fraction = fraction(v).ok_or(Fault::Expected("a number from 0 to 1"))?;
        conf.per_process_memory_fraction = Some(fraction);
        Ok(())
    }),
    ("throw_on_cudamalloc_oom", |_, v| boolean(v).map(drop)),
    ("graph_capture_record_stream_reuse", |_, v| boolean(v).map(drop)),
    ("release_lock_on_cudamalloc", |_, v| boolean(v).map(drop)),
    ("pinned_max_round_threshold_mb", |conf, v| {
        conf.pinned_max_round = Some(megabytes(v, 1, "a whole number from 1 on")?);
        Ok(())
    }),
    ("pinned_max_cached_size_mb", |conf, v| {
        conf.pinned_max_cached = Some(megabytes(v, 1, "a whole number from 1 on")?);
        Ok(())
    }),
    ("pinned_use_cuda_host_register", |_, v| boolean(v).map(drop)),
    ("pinned_num_register_threads", |_, v| {
        let count = v.parse::<u64>().ok().filter(|n| n.is_power_of_two() && *n <= MOST_THREADS);
        count.map(drop).ok_or(Fault::Expected("a power of two up to 128"))
    }),
    ("pinned_use_background_threads", |_, v| boolean(v).map(drop)),
    ("pinned_reserve_segment_size_mb", |_, v| megabytes(v, 1, "a whole number from 1 on").map(drop)),
    ("pinned_free_catch_all", |_, v| boolean(v).map(drop)),
];

impl AllocConf {
    /// Parses a settings string; an empty one gives the defaults.
    pub fn parse(text: &str) -> Result<AllocConf> {
        let mut conf = AllocConf::default();
        for pair in split_outside_brackets(text) {
            let pair = pair.trim();
            if pair.is_empty() {
                continue;
            }
            let Some((key, value)) = pair.split_once(':') else {
                return Err(bad(format!("`{pair}` has no value")).help("write `key:value`"));
            };
            conf.set(key.trim(), value.trim())?;
        }
        if !text.contains("max_non_split_rounding_mb") {
            conf.max_non_split_rounding = conf.large_segment;
        }
        if conf.max_split_size.is_some_and(|size| size < conf.large_segment) {
            let size = conf.large_segment >> 20;
            return Err(bad(format!("`max_split_size_mb` is below the {size} of `large_segment_size_mb`")));
        }
        Ok(conf)
    }

    /// The settings from the environment variable `RUNNEL_ALLOC_CONF`.
    pub fn from_env() -> Result<AllocConf> {
        AllocConf::parse(&std::env::var("RUNNEL_ALLOC_CONF").unwrap_or_default())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        // PyTorch accepts these names on AMD and other devices.
        let name = key.replace("_hip_", "_cuda_").replace("hipmalloc", "cudamalloc");
        let Some((_, set)) = KEYS.iter().find(|(known, _)| *known == name) else {
            let error = bad(format!("unknown key `{key}`"));
            let keys = || KEYS.iter().map(|(known, _)| *known);
            return Err(match suggest(key, keys()) {
                Some(near) => error.help(format!("did you mean `{near}`?")),
                None => error.help(format!("the keys are `{}`", keys().collect::<Vec<_>>().join("`, `"))),
            });
        };
        set(self, value).map_err(|fault| match fault {
            Fault::Expected(what) => bad(format!("`{key}` is {what}, not `{value}`")),
            Fault::Other(error) => error,
        })
    }

    /// True when blocks of this size are never split.
    pub(super) fn is_oversize(&self, size: u64) -> bool {
        self.max_split_size.is_some_and(|limit| size >= limit)
    }

    /// The rounded size of a request.
    pub(super) fn round(&self, bytes: u64) -> u64 {
        if bytes < MIN_BLOCK {
            return MIN_BLOCK;
        }
        let interval = (bytes.ilog2().saturating_sub(FIRST_INTERVAL) as usize).min(INTERVALS - 1);
        let divisions = self.roundup_power2_divisions[interval];
        if divisions > 1 && bytes > MIN_BLOCK * divisions {
            let step = (1 << bytes.ilog2()) / divisions;
            return bytes.next_multiple_of(step);
        }
        bytes.next_multiple_of(MIN_BLOCK)
    }

    /// The size of a page-locked block for a request: a power of two, unless the settings prefer the exact
    /// size. `None` on overflow.
    pub(crate) fn round_pinned(&self, bytes: u64) -> Option<u64> {
        let exact = [self.pinned_max_round, self.pinned_max_cached];
        match exact.into_iter().flatten().any(|limit| bytes > limit) {
            true => bytes.checked_next_multiple_of(PINNED_UNIT),
            false => bytes.checked_next_power_of_two(),
        }
    }

    /// True when page-locked blocks of this size are cached.
    pub(crate) fn keeps_pinned(&self, size: u64) -> bool {
        self.pinned_max_cached.is_none_or(|limit| size <= limit)
    }
}

/// Page-locked block sizes that are not powers of two are multiples of one page.
const PINNED_UNIT: u64 = 4096;

fn bad(what: String) -> Error {
    bad_alloc_conf(format!("`RUNNEL_ALLOC_CONF`: {what}"))
}

fn boolean(value: &str) -> std::result::Result<bool, Fault> {
    match value.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Fault::Expected("true or false")),
    }
}

/// Parses a number of MiB, at least `least`; returns bytes.
fn megabytes(value: &str, least: u64, expected: &'static str) -> std::result::Result<u64, Fault> {
    let size = value.parse::<u64>().ok().filter(|&mb| mb >= least).and_then(|mb| mb.checked_mul(1 << 20));
    size.filter(|&bytes| bytes <= 1 << 60).ok_or(Fault::Expected(expected))
}

fn fraction(value: &str) -> Option<f64> {
    value.parse::<f64>().ok().filter(|t| (0.0..=1.0).contains(t))
}

fn one_of(value: &str, known: &[&str], expected: &'static str) -> std::result::Result<(), Fault> {
    if known.contains(&value) { Ok(()) } else { Err(Fault::Expected(expected)) }
}

/// Splits at commas that are not inside `[ ]`.
fn split_outside_brackets(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |c| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    })
}

/// Parses `4`, or `[256:1,512:2,>:4]`: each size in MiB starts a range with its own number of divisions.
/// Sizes below the first use the first number; `>` sets all sizes from the last named one on.
fn divisions(value: &str) -> Result<[u64; INTERVALS]> {
    let number = |text: &str| {
        let number = text.trim().parse::<u64>().ok().filter(|&n| n == 0 || n.is_power_of_two());
        let number = number.filter(|&n| n <= 1 << 20);
        number.ok_or_else(|| {
            bad(format!(
                "the divisions of `roundup_power2_divisions` are powers of two, not `{}`",
                text.trim()
            ))
        })
    };
    let Some(list) = value.strip_prefix('[') else { return Ok([number(value)?; INTERVALS]) };
    let Some(list) = list.strip_suffix(']') else {
        return Err(bad("the list of `roundup_power2_divisions` does not end in `]`".to_string()));
    };
    let mut divisions = [0; INTERVALS];
    let mut last = None;
    for pair in list.split(',') {
        let Some((size, count)) = pair.split_once(':') else {
            return Err(bad(format!("`{}` of `roundup_power2_divisions` has no value", pair.trim())));
        };
        let count = number(count)?;
        if size.trim() == ">" {
            divisions[last.unwrap_or(0)..].fill(count);
            continue;
        }
        let size = size.trim().parse::<u64>().ok().filter(|s| s.is_power_of_two()).ok_or_else(|| {
            bad(format!("the sizes of `roundup_power2_divisions` are powers of two, not `{}`", size.trim()))
        })?;
        let index = (size.ilog2() as usize).min(INTERVALS - 1);
        if last.is_none() {
            divisions[..index].fill(count);
        }
        divisions[index] = count;
        last = Some(index);
    }
    Ok(divisions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_checked() {
        let conf = AllocConf::parse("expandable_segments:False, max_split_size_mb:128").unwrap();
        assert_eq!(conf.expandable_segments, Some(false));
        assert_eq!(conf.max_split_size, Some(128 << 20));
        assert_eq!(AllocConf::parse("").unwrap(), AllocConf::default());
        let error = AllocConf::parse("max_split_size:128").unwrap_err();
        assert_eq!(error.code().id, "E0703");
        assert_eq!(error.help_text(), Some("did you mean `max_split_size_mb`?"));
        for text in ["max_split_size_mb:19", "max_split_size_mb", "garbage_collection_threshold:1", "x:1"] {
            assert!(AllocConf::parse(text).is_err(), "{text}");
        }
        for text in ["roundup_power2_divisions:3", "roundup_power2_divisions:[256:1", "expandable_segments:1"]
        {
            assert!(AllocConf::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_round_up_to_divisions_of_powers_of_two() {
        let plain = AllocConf::default();
        assert_eq!([1, 512, 513, 1 << 20].map(|b| plain.round(b)), [512, 512, 1024, 1 << 20]);
        let conf = AllocConf::parse("roundup_power2_divisions:4").unwrap();
        // 1200 is below 4 x 512, so plain rounding applies. Source: the example in PyTorch's notes.
        assert_eq!(conf.round(1200), 1536);
        assert_eq!(conf.round(1_200_000), 1_310_720);
        assert_eq!(conf.round(1 << 21), 1 << 21);
        let conf = AllocConf::parse("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]").unwrap();
        let divisions = conf.roundup_power2_divisions;
        assert_eq!(divisions[..12], [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 8, 8]);
    }

    #[test]
    fn every_key_of_pytorch_is_taken_and_its_value_checked() {
        let good = "backend:native,max_split_size_mb:64,max_non_split_rounding_mb:128,\
                    roundup_power2_divisions:[256:1,>:2],garbage_collection_threshold:0.8,\
                    expandable_segments:True,pinned_use_cuda_host_register:True,\
                    pinned_num_register_threads:8,pinned_use_background_threads:true,\
                    pinned_reserve_segment_size_mb:16,pinned_max_round_threshold_mb:128,\
                    pinned_max_cached_size_mb:256,per_process_memory_fraction:0.5,\
                    graph_capture_record_stream_reuse:False,throw_on_cudamalloc_oom:True,\
                    large_segment_size_mb:32,release_lock_on_cudamalloc:true,pinned_free_catch_all:false,\
                    pinned_use_hip_host_register:true,release_lock_on_hipmalloc:true";
        let conf = AllocConf::parse(good).unwrap();
        assert_eq!((conf.max_non_split_rounding, conf.large_segment), (128 << 20, 32 << 20));
        assert_eq!(conf.per_process_memory_fraction, Some(0.5));
        assert!(AllocConf::parse("backend:cudaMallocAsync").is_ok());
        for (key, _) in KEYS {
            let error = AllocConf::parse(&format!("{key}:-x")).unwrap_err();
            assert_eq!(error.code().id, "E0703", "{key}");
            assert!(error.message().contains(key), "{key}: {}", error.message());
        }
        for text in ["pinned_num_register_threads:3", "pinned_num_register_threads:256", "backend:none"] {
            assert!(AllocConf::parse(text).is_err(), "{text}");
        }
        for text in
            ["per_process_memory_fraction:1.5", "per_process_memory_fraction:nan", "large_segment_size_mb:0"]
        {
            assert!(AllocConf::parse(text).is_err(), "{text}");
        }
        let error = AllocConf::parse("pinned_use_background_thread:true").unwrap_err();
        assert_eq!(error.help_text(), Some("did you mean `pinned_use_background_threads`?"));
    }

    #[test]
    fn page_locked_sizes_are_powers_of_two_or_exact() {
        const MIB: u64 = 1 << 20;
        let conf =
            AllocConf::parse("pinned_max_round_threshold_mb:128,pinned_max_cached_size_mb:64").unwrap();
        assert_eq!(conf.round_pinned(33 * MIB), Some(64 * MIB));
        assert_eq!(conf.round_pinned(65 * MIB), Some(65 * MIB));
        assert!(conf.keeps_pinned(64 * MIB) && !conf.keeps_pinned(65 * MIB));
        assert_eq!(AllocConf::default().round_pinned(65 * MIB), Some(128 * MIB));
        assert_eq!(AllocConf::default().round_pinned(u64::MAX), None);
    }
}
