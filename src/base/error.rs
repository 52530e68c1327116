//! The error type of all phases, from the lexer to driver calls.
//!
//! A phase below the language creates an [`Error`] without source positions: it refers to operand numbers
//! ([`Place::Operand`]) or to the operation itself ([`Place::Here`]). The virtual machine fills in the
//! positions once, while the error propagates ([`Error::locate`]). Nothing here renders; `engine::report`
//! does that.
//!
//! Each phase has an `error.rs` with its [`Code`]s and one constructor function per error. `library::codes`
//! lists them all for `runnel explain`.

use super::{SourceMap, Span};
use std::borrow::Cow;
use std::sync::Arc;

/// The result of all fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The value of `e.kind` in a script.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorKind {
    Syntax,
    Name,
    Type,
    Value,
    Shape,
    Index,
    Device,
    Race,
    OutOfMemory,
    Cuda,
    Io,
    Assert,
    Thrown,
    Limit,
    Interrupted,
    /// `exit(status)`: visible only to the host program, not to scripts.
    Exit,
}

impl ErrorKind {
    /// Returns whether `try` catches errors of this kind. Interrupts, limits on time and `exit` are not
    /// caught.
    pub fn can_be_caught(self) -> bool {
        !matches!(self, ErrorKind::Interrupted | ErrorKind::Exit)
    }
}

impl std::fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, f)
    }
}

/// A stable error code with its documentation page.
///
/// Numbers: E01xx syntax, E02xx names and calls, E03xx types and values, E04xx shapes and indices,
/// E05xx devices and streams, E06xx races, E07xx memory, E08xx CUDA and kernels, E09xx files and
/// programs, E10xx limits. Once published a number keeps its meaning.
///
/// Example: `E0401` of kind `Shape`, titled "shapes do not broadcast".
pub struct Code {
    /// `E0401`.
    pub id: &'static str,
    /// The value of `e.kind`.
    pub kind: ErrorKind,
    /// A noun phrase without a final stop.
    pub title: &'static str,
    /// The page of `runnel explain`: the cause, then the fix. Markdown, complete sentences.
    pub page: &'static str,
    /// A short script that ends in exactly this error; the tests run it. Empty if no script alone can cause
    /// it (a missing driver).
    pub example: &'static str,
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.id)
    }
}

/// The target of a label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A span of source text.
    Span(Span),
    /// The n-th parameter of the operation, from 0; a method's receiver is 0.
    Operand(usize),
    /// An element of a list parameter: the parameter's number, then the element's.
    Element(usize, usize),
    /// As `Element`, by argument number as written in the call.
    ElementOf(usize, usize),
    /// The expression before the dot of a method call.
    Receiver,
    /// Arguments as written in the call: first number inclusive, second exclusive.
    Arguments(usize, usize),
    /// The name of the n-th argument, if it is passed by name.
    Name(usize),
    /// The name after the dot.
    Attribute,
    /// The operand in this memory, resolved by [`Error::of_memory`]; otherwise the whole operation.
    Memory(Piece),
    /// The whole operation.
    Here,
}

/// A range of bytes of one storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Identifies the memory.
    pub id: usize,
    /// The first byte.
    pub from: u64,
    /// One past the last byte.
    pub to: u64,
}

impl Piece {
    /// True if the two pieces overlap.
    pub fn meets(&self, other: &Piece) -> bool {
        self.id == other.id && self.from < other.to && other.from < self.to
    }
}

/// The source position of an operation and its parts.
#[derive(Clone, Copy, Default, Debug)]
pub struct Site<'a> {
    /// The whole operation.
    pub here: Span,
    /// Its operands in source order; a method's receiver first.
    pub operands: &'a [Span],
    /// Whether the first operand is the receiver of a method.
    pub receiver: bool,
    /// The names of arguments passed by name, each with its argument number.
    pub names: &'a [(usize, Span)],
    /// The name after the dot.
    pub attribute: Option<Span>,
}

impl Site<'_> {
    /// An operation of which only the position is known.
    pub fn of(here: Span) -> Site<'static> {
        Site { here, ..Site::default() }
    }

    fn find(&self, place: Place) -> Option<Span> {
        let operand = |index: usize| self.operands.get(index).copied();
        let argument = |index: usize| operand(index + usize::from(self.receiver));
        match place {
            Place::Span(span) => Some(span),
            Place::Operand(index) => operand(index),
            Place::Receiver => operand(0).filter(|_| self.receiver),
            Place::Arguments(from, to) if from < to => match (argument(from), argument(to - 1)) {
                (Some(first), Some(last)) if first.lo <= last.hi => Some(Span::new(first.lo, last.hi)),
                _ => None,
            },
            Place::Name(index) => {
                let name = self.names.iter().find(|(of, _)| *of == index);
                name.map(|(_, span)| *span).or_else(|| argument(index))
            }
            Place::Element(index, _) => operand(index),
            Place::ElementOf(index, _) => argument(index),
            Place::Attribute => self.attribute,
            Place::Arguments(..) | Place::Memory(_) | Place::Here => None,
        }
    }
}

/// The text of a label.
#[derive(Clone, PartialEq, Debug)]
pub enum Remark {
    /// A description of the target: `f32[3, 4] on cuda:1` in "this is f32[3, 4] on cuda:1". See [`this_is`].
    Is(String),
    /// Anything else.
    Text(String),
}

/// "this is f32[3, 4] on cuda:1": describes what is at a source position. For a list element without its own
/// position the label says "element 2 is f32[3, 4] on cuda:1".
pub fn this_is(what: impl Into<String>) -> Remark {
    Remark::Is(what.into())
}

impl Remark {
    /// The remark with `subject` as its subject.
    fn about(&self, subject: &str) -> String {
        match self {
            Remark::Is(what) => format!("{subject} is {what}"),
            Remark::Text(text) => format!("{subject}: {text}"),
        }
    }
}

impl From<String> for Remark {
    fn from(text: String) -> Remark {
        Remark::Text(text)
    }
}

impl From<&str> for Remark {
    fn from(text: &str) -> Remark {
        Remark::Text(text.into())
    }
}

/// A remark at a source position.
#[derive(Clone, PartialEq, Debug)]
pub struct Label {
    /// The target.
    pub place: Place,
    /// The remark.
    pub remark: Remark,
}

impl Label {
    /// `this is f32[3, 4] on cuda:1`.
    pub fn text(&self) -> Cow<'_, str> {
        match &self.remark {
            Remark::Is(what) => Cow::Owned(format!("this is {what}")),
            Remark::Text(text) => Cow::Borrowed(text),
        }
    }
}

/// An error: message, labels, help. The message starts in lower case, has no final stop, and has user input
/// in back-ticks.
#[derive(Clone)]
pub struct Error(Box<Content>);

#[derive(Clone)]
struct Content {
    code: &'static Code,
    message: String,
    /// The needed argument, until [`Error::called`] names the operation.
    wanted: Option<String>,
    labels: Vec<Label>,
    help: Option<String>,
    calls: Vec<Span>,
    more: Vec<Error>,
    status: Option<u8>,
    /// The sources that its spans refer to, after it has left its session.
    sources: Option<Arc<SourceMap>>,
}

impl Error {
    /// An error with only a message.
    #[cold]
    pub fn new(code: &'static Code, message: impl Into<String>) -> Error {
        Error(Box::new(Content {
            code,
            message: message.into(),
            wanted: None,
            labels: Vec::new(),
            help: None,
            calls: Vec::new(),
            more: Vec::new(),
            status: None,
            sources: None,
        }))
    }

    /// An error for an argument of the wrong kind: "this operation needs a shape here", until
    /// [`Error::called`] names the operation.
    #[cold]
    pub fn needs(code: &'static Code, wanted: &str) -> Error {
        let mut error = Error::new(code, format!("this operation needs {wanted} here"));
        error.0.wanted = Some(wanted.into());
        error
    }

    /// Inserts the name of the operation into the message of [`Error::needs`].
    pub fn called(mut self, name: &str) -> Error {
        if let Some(wanted) = self.0.wanted.take() {
            self.0.message = format!("`{name}` needs {wanted} here");
        }
        self
    }

    /// Replaces the message.
    pub fn with_message(mut self, message: impl Into<String>) -> Error {
        self.0.message = message.into();
        self
    }

    /// Rewrites every string of the report: message, labels, help. The virtual machine uses this to insert
    /// variable names.
    pub fn rewrite(mut self, mut f: impl FnMut(&str) -> String) -> Error {
        self.0.message = f(&self.0.message);
        for label in &mut self.0.labels {
            let (Remark::Is(text) | Remark::Text(text)) = &mut label.remark;
            *text = f(text);
        }
        self.0.help = self.0.help.as_deref().map(f);
        self
    }

    /// Adds a label.
    pub fn label(mut self, place: Place, remark: impl Into<Remark>) -> Error {
        self.0.labels.push(Label { place, remark: remark.into() });
        self
    }

    /// Adds a label on source text.
    pub fn at(self, span: Span, remark: impl Into<Remark>) -> Error {
        self.label(Place::Span(span), remark)
    }

    /// Adds a label on the n-th operand.
    pub fn operand(self, index: usize, remark: impl Into<Remark>) -> Error {
        self.label(Place::Operand(index), remark)
    }

    /// Adds a label on an element of the list that is the n-th operand. If the list is not written out in the
    /// call, the label covers all of it and gives the element's number.
    pub fn element(self, index: usize, at: usize, remark: impl Into<Remark>) -> Error {
        self.label(Place::Element(index, at), remark)
    }

    /// Removes the labels on operands.
    pub fn without_operands(mut self) -> Error {
        self.0.labels.retain(|label| !matches!(label.place, Place::Operand(_) | Place::Element(..)));
        self
    }

    /// Labels the n-th operand with what it is. A label that says so already, or that says something else, is kept; a
    /// description of another value, which a step of the operation had in its place, is replaced.
    pub fn described(mut self, index: usize, what: &str) -> Error {
        let place = Place::Operand(index);
        match self.0.labels.iter_mut().find(|label| label.place == place) {
            None => self.label(place, this_is(what)),
            Some(label) => {
                if let Remark::Is(said) = &mut label.remark
                    && !said.starts_with(what)
                {
                    *said = what.into();
                }
                self
            }
        }
    }

    /// Turns labels on operands into labels on elements of the list that is the n-th operand.
    pub fn in_list(self, index: usize) -> Error {
        self.places(|place| match place {
            Place::Operand(at) => Place::Element(index, at),
            place => place,
        })
    }

    /// Renumbers operands: operand `i` becomes `order[i]`. For operations whose implementation takes operands
    /// in another order than the user wrote them.
    pub fn reorder(mut self, order: &[usize]) -> Error {
        for label in &mut self.0.labels {
            if let Place::Operand(index) = &mut label.place {
                *index = order.get(*index).copied().unwrap_or(*index);
            }
        }
        self
    }

    /// Turns labels on parameters into labels on arguments of the call: parameter `i` has the arguments
    /// `passed(i)`, start inclusive, end exclusive. If it has none, the label covers the whole call.
    pub fn passed(self, passed: impl Fn(usize) -> (usize, usize)) -> Error {
        self.places(|place| match place {
            Place::Operand(index) => {
                let (from, to) = passed(index);
                Place::Arguments(from, to)
            }
            Place::Element(index, at) => match passed(index) {
                (from, to) if to == from + 1 => Place::ElementOf(from, at),
                // Elements passed as separate arguments.
                (from, to) if from + at < to => Place::Arguments(from + at, from + at + 1),
                (from, to) => Place::Arguments(from, to),
            },
            place => place,
        })
    }

    /// Treats the first argument as the receiver of a method, and numbers the others from 0.
    pub fn received(self) -> Error {
        self.places(|place| match place {
            Place::Arguments(0, 1) => Place::Receiver,
            Place::Arguments(from, to) => Place::Arguments(from.saturating_sub(1), to.saturating_sub(1)),
            Place::Name(index) => Place::Name(index.saturating_sub(1)),
            Place::ElementOf(0, _) => Place::Receiver,
            Place::ElementOf(index, at) => Place::ElementOf(index - 1, at),
            place => place,
        })
    }

    /// Renumbers the arguments of a call with `..x`: argument `i` is written at `written(i)`.
    pub fn written(self, written: impl Fn(usize) -> usize) -> Error {
        self.places(|place| match place {
            Place::Arguments(from, to) if from < to => Place::Arguments(written(from), written(to - 1) + 1),
            Place::Name(index) => Place::Name(written(index)),
            Place::ElementOf(index, at) => Place::ElementOf(written(index), at),
            place => place,
        })
    }

    /// Replaces labels of memory by the operands that `find` gives for it.
    pub fn of_memory(self, find: impl Fn(Piece) -> Option<Place>) -> Error {
        self.places(|place| match place {
            Place::Memory(piece) => find(piece).unwrap_or(place),
            place => place,
        })
    }

    fn places(mut self, f: impl Fn(Place) -> Place) -> Error {
        for label in &mut self.0.labels {
            label.place = f(label.place);
        }
        self
    }

    /// Sets the help: what to write instead.
    pub fn help(mut self, help: impl Into<String>) -> Error {
        self.0.help = Some(help.into());
        self
    }

    /// Turns the error into the end of a script by `exit`.
    pub fn with_exit_status(mut self, status: u8) -> Error {
        self.0.status = Some(status);
        self
    }

    /// The exit status given by `exit(status)`; `None` for all other errors.
    pub fn exit_status(&self) -> Option<u8> {
        self.0.status
    }

    /// Attaches the sources that its spans refer to: the error leaves the session, which may drop them.
    pub fn with_sources(mut self, sources: &SourceMap) -> Error {
        if self.0.sources.is_none() {
            let mut spans = Vec::new();
            self.spans(&mut spans);
            self.0.sources = Some(Arc::new(sources.part(spans)));
        }
        self
    }

    /// The sources that its spans refer to, if attached.
    pub fn sources(&self) -> Option<&SourceMap> {
        self.0.sources.as_deref()
    }

    /// The spans of this error and its attached errors.
    fn spans(&self, spans: &mut Vec<Span>) {
        spans.extend(self.0.labels.iter().filter_map(|l| match l.place {
            Place::Span(span) => Some(span),
            _ => None,
        }));
        spans.extend(&self.0.calls);
        self.0.more.iter().filter(|e| e.0.sources.is_none()).for_each(|e| e.spans(spans));
    }

    /// Prepares an error of another session for this one. Its spans mean nothing here, so it becomes the
    /// cause of a new error without labels.
    pub fn from_elsewhere(self) -> Error {
        if self.0.sources.is_none() {
            return self;
        }
        let mut error = Error::new(self.0.code, self.0.message.clone());
        error.0.help = self.0.help.clone();
        error.0.status = self.0.status;
        error.and(self)
    }

    /// Adds another error of the same report (several syntax errors, the members of a chain).
    pub fn and(mut self, other: Error) -> Error {
        self.0.more.push(other);
        self
    }

    /// Appends an active call; innermost first.
    pub fn call(mut self, span: Span) -> Error {
        self.0.calls.push(span);
        self
    }

    /// Moves labels on list elements to the elements' own positions, where `find` knows the position of an
    /// element in the list at a span. If it does not know one of them, the labels of that list become one
    /// label with all element numbers.
    pub fn elements(mut self, site: &Site<'_>, find: impl Fn(Span, usize) -> Option<Span>) -> Error {
        let element = |place: Place| match place {
            Place::Element(_, at) | Place::ElementOf(_, at) => Some((site.find(place), at)),
            _ => None,
        };
        let found = |list: Option<Span>, at: usize| list.and_then(|list| find(list, at));
        let labels = std::mem::take(&mut self.0.labels);
        let unknown: Vec<Option<Span>> = labels
            .iter()
            .filter_map(|label| element(label.place))
            .filter(|(list, at)| found(*list, *at).is_none())
            .map(|(list, _)| list)
            .collect();
        for Label { place, remark } in labels {
            let Some((list, at)) = element(place) else {
                self.0.labels.push(Label { place, remark });
                continue;
            };
            if !unknown.contains(&list) {
                let place = found(list, at).map_or(place, Place::Span);
                self.0.labels.push(Label { place, remark });
                continue;
            }
            let text = remark.about(&format!("element {at}"));
            let place = list.map_or(Place::Here, Place::Span);
            match self.0.labels.iter_mut().find(|label| label.place == place) {
                Some(label) => label.remark = format!("{}, {text}", label.text()).into(),
                None => self.0.labels.push(Label { place, remark: text.into() }),
            }
        }
        self
    }

    /// Makes labels that start with "this is" start with the given subject instead.
    pub fn about(mut self, subject: &str) -> Error {
        for label in &mut self.0.labels {
            if matches!(label.remark, Remark::Is(_)) {
                label.remark = Remark::Text(label.remark.about(subject));
            }
        }
        self
    }

    /// Replaces operand labels by source positions. Labels that already have a span keep it; an error without
    /// labels gets one on the whole operation.
    pub fn locate(mut self, site: &Site<'_>) -> Error {
        if !self.is_located() {
            let labels = &mut self.0.labels;
            // Memory of no known operand gets one label, and none if another operand has one.
            let is_memory = |l: &Label| matches!(l.place, Place::Memory(_));
            let mut told = labels.iter().any(|l| !is_memory(l) && !matches!(l.place, Place::Span(_)));
            labels.retain(|l| !is_memory(l) || !std::mem::replace(&mut told, true));
            // Drop labels without their own position if the whole operation has a label.
            if labels.iter().any(|l| l.place == Place::Here) {
                labels.retain(|l| l.place == Place::Here || site.find(l.place).is_some());
            }
            for label in labels {
                label.place = Place::Span(site.find(label.place).unwrap_or(site.here));
            }
            if self.0.labels.is_empty() {
                self.0.labels.push(Label { place: Place::Span(site.here), remark: "".into() });
            }
        }
        self
    }

    /// True when every label has a span, and there is at least one.
    pub fn is_located(&self) -> bool {
        let spanned = |l: &Label| matches!(l.place, Place::Span(_));
        !self.0.labels.is_empty() && self.0.labels.iter().all(spanned)
    }

    /// The code.
    pub fn code(&self) -> &'static Code {
        self.0.code
    }

    /// The kind, as `e.kind` gives it.
    pub fn kind(&self) -> ErrorKind {
        self.0.code.kind
    }

    /// The message without labels and help.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The labels, main one first.
    pub fn labels(&self) -> &[Label] {
        &self.0.labels
    }

    /// The help: the correction, if there is one.
    pub fn help_text(&self) -> Option<&str> {
        self.0.help.as_deref()
    }

    /// The calls that were active, innermost first.
    pub fn calls(&self) -> &[Span] {
        &self.0.calls
    }

    /// The other errors of this report.
    pub fn others(&self) -> &[Error] {
        &self.0.more
    }

    /// The span of the first label that has one.
    pub fn span(&self) -> Span {
        let spans = self.0.labels.iter().filter_map(|l| match l.place {
            Place::Span(span) => Some(span),
            _ => None,
        });
        spans.into_iter().find(|s| !s.is_none()).unwrap_or(Span::NONE)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.0.code.id, self.0.message)
    }
}

impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")?;
        for label in &self.0.labels {
            write!(f, "\n  {:?}: {}", label.place, label.text())?;
        }
        match &self.0.help {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    static CODE: Code = Code { id: "E0000", kind: ErrorKind::Value, title: "", page: "", example: "" };

    #[test]
    fn operands_are_renumbered() {
        let error = Error::new(&CODE, "no").operand(0, "mask").operand(2, "x").reorder(&[1, 2, 0]);
        let places: Vec<Place> = error.labels().iter().map(|l| l.place).collect();
        assert_eq!(places, [Place::Operand(1), Place::Operand(0)]);
    }

    #[test]
    fn parameters_are_labelled_where_their_arguments_stand() {
        // x.f(2, 3, dim=1) for f(x, *size, dim, out): the receiver, two arguments, a named one, a missing
        // one.
        let error = (0..4).fold(Error::new(&CODE, "no").label(Place::Name(3), ""), |e, i| e.operand(i, ""));
        let passed = [(0, 1), (1, 3), (3, 4)];
        let error = error.passed(|i| passed.get(i).copied().unwrap_or((0, 0))).received();
        let operands = [Span::new(0, 1), Span::new(4, 5), Span::new(7, 8), Span::new(14, 15)];
        let names = [(2, Span::new(10, 13))];
        let here = Span::new(0, 16);
        let error =
            error.locate(&Site { here, operands: &operands, receiver: true, names: &names, attribute: None });
        let places: Vec<Place> = error.labels().iter().map(|l| l.place).collect();
        let expected = [Span::new(10, 13), Span::new(0, 1), Span::new(4, 8), Span::new(14, 15), here];
        assert_eq!(places, expected.map(Place::Span));
    }

    #[test]
    fn elements_are_labelled_where_the_call_writes_them() {
        // x.f([a, b], y) for f(x, list, other): labels that `f` sets on elements of `list` and of `other`.
        let said = || {
            let error = Error::new(&CODE, "no").element(1, 0, this_is("a")).element(1, 1, this_is("b"));
            let error = error.element(2, 1, "of the other").operand(0, this_is("x"));
            error.passed(|i| (i, i + 1)).received()
        };
        let operands = [Span::new(0, 1), Span::new(4, 10), Span::new(12, 13)];
        let site = Site { here: Span::new(0, 14), operands: &operands, receiver: true, ..Site::default() };
        let seen = |error: Error| -> Vec<(Place, String)> {
            error.locate(&site).labels().iter().map(|l| (l.place, l.text().into_owned())).collect()
        };
        let at = |lo, hi, text: &str| (Place::Span(Span::new(lo, hi)), text.to_string());
        let find =
            |list: Span, i: usize| (list.lo == 4).then(|| Span::new(5 + 3 * i as u32, 6 + 3 * i as u32));
        assert_eq!(
            seen(said().elements(&site, find)),
            [
                at(5, 6, "this is a"),
                at(8, 9, "this is b"),
                at(12, 13, "element 1: of the other"),
                at(0, 1, "this is x")
            ]
        );
        assert_eq!(
            seen(said().elements(&site, |_, i| find(operands[1], i).filter(|_| i == 0))),
            [
                at(4, 10, "element 0 is a, element 1 is b"),
                at(12, 13, "element 1: of the other"),
                at(0, 1, "this is x")
            ]
        );
        // Elements passed as separate arguments are arguments.
        let error = Error::new(&CODE, "no").element(0, 1, "this").passed(|_| (0, 3));
        assert_eq!(error.labels()[0].place, Place::Arguments(1, 2));
    }

    #[test]
    fn operands_get_their_spans_once() {
        let error = Error::new(&CODE, "no").operand(1, "this").at(Span::new(9, 10), "that");
        let (here, args) = (Span::new(1, 8), [Span::new(1, 2), Span::new(3, 4)]);
        let error = error.locate(&Site { here, operands: &args, ..Site::default() });
        let error = error.locate(&Site::of(Span::new(20, 21)));
        assert_eq!(error.labels()[0].place, Place::Span(Span::new(3, 4)));
        assert_eq!(error.labels()[1].place, Place::Span(Span::new(9, 10)));
        assert_eq!(error.span(), Span::new(3, 4));
    }
}
