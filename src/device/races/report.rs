//! A conflict as an error: both lines, and the one line that repairs it.

use super::{Access, Conflict, Site, Where};
use crate::base::{Error, Place};
use crate::device::{DeviceId, Stream, error};

impl Conflict {
    /// The error for an access that was refused: by `site` on `stream` (`None`: by the host itself).
    /// `waiter` and `earlier` are source texts that name the two streams, for the repairing line:
    /// `s`, `cuda.default_stream()`; the host needs no name.
    pub fn error(
        &self,
        site: Site,
        access: Access,
        stream: Option<&Stream>,
        waiter: &str,
        earlier: &str,
    ) -> Error {
        let here = stream.map_or(Where::Host, |s| Where::Stream(s.device(), s.id()));
        let both = devices(here, self.place);
        let message = format!(
            "{} on {} may start before {} on {} has finished",
            quoted(site.name),
            name(here, both),
            quoted(self.site.name),
            name(self.place, both),
        );
        let later = format!("this {} it on {}", verb(access), name(here, both));
        let before = format!("this {} it on {}", verb(self.access), name(self.place, both));
        let error = Error::new(&error::RACE, message);
        let error = match site.span.is_none() {
            true => error.label(Place::Here, later),
            false => error.at(site.span, later),
        };
        let error = match self.site.span.is_none() {
            true => error,
            false => error.at(self.site.span, before),
        };
        error.help(match here {
            Where::Host => format!("insert `{earlier}.synchronize()` before this line"),
            Where::Stream(..) => format!("insert `{waiter}.wait_stream({earlier})` before this line"),
        })
    }
}

/// True when the two places lie on two devices, which the texts must then name.
fn devices(a: Where, b: Where) -> bool {
    let device = |w| match w {
        Where::Host => None,
        Where::Stream(device, _) => Some(device),
    };
    matches!((device(a), device(b)), (Some(a), Some(b)) if a != b)
}

fn name(place: Where, with_device: bool) -> String {
    let of = |device: DeviceId| if with_device { format!(" of {device}") } else { String::new() };
    match place {
        Where::Host => "the host".to_string(),
        Where::Stream(device, 0) => format!("the default stream{}", of(device)),
        Where::Stream(device, id) => format!("stream {id}{}", of(device)),
    }
}

fn quoted(name: &str) -> String {
    if name.is_empty() { "an operation".to_string() } else { format!("`{name}`") }
}

fn verb(access: Access) -> &'static str {
    match access {
        Access::Read => "reads",
        Access::Write => "writes",
    }
}
