//! Errors of the order between streams.

use crate::base::{Code, Error, ErrorKind, Piece, Place};
use crate::stream::races::{Access, Conflict, Site, Where};

/// Every error code of this module.
pub static CODES: &[&Code] = &[&RACE];

/// Two unordered accesses to the same memory on two streams.
pub static RACE: Code = Code {
    id: "E0601",
    kind: ErrorKind::Race,
    title: "race between streams",
    page: "Two operations on different streams touch the same memory, at least one of them writes, and \
           nothing makes the second wait for the first. Work on different streams runs in any order, so \
           the result would be unpredictable.\n\nInsert the line that the help shows: the later stream \
           waits for the earlier one (`wait_stream`), for an event recorded after the earlier operation \
           (`wait_event`), or the host waits (`synchronize`). `races(\"fix\")` orders such pairs \
           automatically, and `races(\"warn\")` does so with a warning.",
    example: "let h = randn(64)\nlet s = Stream()\nwith stream(s) { h.sum() }",
};

/// The name of a place in a report before the names of stream variables are known: a token that the virtual
/// machine replaces ([`Error::rewrite`]).
pub fn stream_token(place: Where) -> String {
    match place {
        Where::Host => "the host".to_string(),
        Where::Stream(device, id) => format!("\u{27e6}{device}#{id}\u{27e7}"),
    }
}

/// The error of an access at `place` that is unordered with earlier ones. The help is the line that fixes it.
///
/// `piece` names the memory of each race.
pub fn race(site: Site, place: Where, earlier: &[Conflict], piece: impl Fn(&Conflict) -> Piece) -> Error {
    let verb = |a: Access| if a == Access::Read { "reads" } else { "writes" };
    let (here, second) = (stream_token(place), site.name);
    let first = |c: &Conflict| format!("`{}` on {}", c.site.name, stream_token(c.place));
    let waits: Vec<String> = (earlier.iter())
        .map(|c| match place {
            Where::Stream(..) => format!("`{here}.wait_stream({})`", stream_token(c.place)),
            Where::Host => format!("`{}.synchronize()`", stream_token(c.place)),
        })
        .collect();
    let (before, has) = match earlier {
        [one] => (first(one), "has"),
        all => (all.iter().map(first).collect::<Vec<_>>().join(" and "), "have"),
    };
    let message = format!("`{second}` on {here} may start before {before} {has} finished");
    let mut error = Error::new(&RACE, message);
    let mut told: Vec<Piece> = Vec::new();
    for c in earlier {
        let piece = piece(c);
        if !told.contains(&piece) {
            told.push(piece);
            let text = format!("`{second}` {} the tensor on {here}", verb(c.wanted));
            error = error.label(Place::Memory(piece), text);
        }
    }
    for c in earlier.iter().filter(|c| !c.site.span.is_none()) {
        let there = stream_token(c.place);
        error = error.at(c.site.span, format!("`{}` {} it on {there}", c.site.name, verb(c.access)));
    }
    error.help(format!("insert {} before this line", waits.join(" and ")))
}
