//! The allocator's settings: `RUNNEL_ALLOC_CONF`, with PyTorch's keys.

use super::MIN_BLOCK;
use crate::base::{Error, Result, suggest};
use crate::device::error::bad_alloc_conf;

/// The keys, for messages.
const KEYS: [&str; 4] =
    ["expandable_segments", "max_split_size_mb", "roundup_power2_divisions", "garbage_collection_threshold"];

/// How many powers of two, from 1 MiB on, have their own number of divisions.
const INTERVALS: usize = 16;
/// Below these sizes all share the first number: 2^20.
const FIRST_INTERVAL: u32 = 20;

/// The allocator's settings.
///
/// Sample: `max_split_size_mb:128,roundup_power2_divisions:[256:1,512:2,>:4]`.
#[derive(Clone, PartialEq, Debug)]
pub struct AllocConf {
    /// Segments that grow in place, where the driver can map memory; `None` when not said.
    pub expandable_segments: Option<bool>,
    /// Bytes from which on blocks are not split.
    pub max_split_size: Option<u64>,
    /// Steps between two powers of two that sizes are rounded up to, from 1 MiB on, by power; 0 for none.
    pub roundup_power2_divisions: [u64; INTERVALS],
    /// The part of a memory fraction above which old segments go back first.
    pub garbage_collection_threshold: Option<f64>,
}

impl Default for AllocConf {
    fn default() -> AllocConf {
        AllocConf {
            expandable_segments: None,
            max_split_size: None,
            roundup_power2_divisions: [0; INTERVALS],
            garbage_collection_threshold: None,
        }
    }
}

impl AllocConf {
    /// Reads a setting text; an empty one gives the defaults.
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
        Ok(conf)
    }

    /// As the environment says, in `RUNNEL_ALLOC_CONF`.
    pub fn from_env() -> Result<AllocConf> {
        AllocConf::parse(&std::env::var("RUNNEL_ALLOC_CONF").unwrap_or_default())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "expandable_segments" => {
                self.expandable_segments = Some(match value.to_ascii_lowercase().as_str() {
                    "true" => true,
                    "false" => false,
                    _ => return Err(bad(format!("`{key}` is true or false, not `{value}`"))),
                });
            }
            "max_split_size_mb" => {
                let size =
                    value.parse::<u64>().ok().filter(|&mb| mb >= 20).and_then(|mb| mb.checked_mul(1 << 20));
                self.max_split_size =
                    Some(size.ok_or_else(|| {
                        bad(format!("`{key}` is a whole number from 20 on, not `{value}`"))
                    })?);
            }
            "roundup_power2_divisions" => self.roundup_power2_divisions = divisions(value)?,
            "garbage_collection_threshold" => {
                let threshold = value.parse::<f64>().ok().filter(|t| *t > 0.0 && *t < 1.0);
                self.garbage_collection_threshold =
                    Some(threshold.ok_or_else(|| bad(format!("`{key}` is between 0 and 1, not `{value}`")))?);
            }
            _ => {
                let error = bad(format!("unknown key `{key}`"));
                return Err(match suggest(key, KEYS) {
                    Some(near) => error.help(format!("did you mean `{near}`?")),
                    None => error.help(format!("the keys are `{}`", KEYS.join("`, `"))),
                });
            }
        }
        Ok(())
    }

    /// True when a block of that size is never split.
    pub(super) fn is_oversize(&self, size: u64) -> bool {
        self.max_split_size.is_some_and(|limit| size >= limit)
    }

    /// A request's size as it is handed out.
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
}

fn bad(what: String) -> Error {
    bad_alloc_conf(format!("`RUNNEL_ALLOC_CONF`: {what}"))
}

/// The parts between commas that are not inside `[ ]`.
fn split_outside_brackets(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |c| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    })
}

/// `4`, or `[256:1,512:2,>:4]`: sizes in MiB from which on a number of divisions holds. Sizes below
/// the first have its number too; `>` sets all sizes from the last named one on.
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
        // 1200 is under 4 x 512: plain rounding. Source: the example in PyTorch's notes.
        assert_eq!(conf.round(1200), 1536);
        assert_eq!(conf.round(1_200_000), 1_310_720);
        assert_eq!(conf.round(1 << 21), 1 << 21);
        let conf = AllocConf::parse("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]").unwrap();
        let divisions = conf.roundup_power2_divisions;
        assert_eq!(divisions[..12], [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 8, 8]);
    }
}
