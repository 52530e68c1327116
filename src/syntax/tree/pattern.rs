//! Patterns.

use super::*;

impl<'s> Tree<'s> {
    /// `x` or `_`
    pub fn bind(&mut self, name: Name) -> Node<Pattern> {
        let span = name.span;
        let kind = if &*name.text == "_" { PatternKind::Discard } else { PatternKind::Bind(name) };
        Node::leaf(Pattern { kind, span })
    }

    /// A value to compare with, or a range to test membership in.
    pub fn value_pattern(&mut self, e: Node<Expr>) -> Node<Pattern> {
        let span = e.it.span;
        Node::new(Pattern { kind: PatternKind::Value(e.it), span }, e.depth + 1)
    }

    /// `a | b`
    pub fn or_pattern(&mut self, mut patterns: Vec<Node<Pattern>>) -> Node<Pattern> {
        if patterns.len() == 1
            && let Some(one) = patterns.pop()
        {
            return one;
        }
        let depth = depth_of(&patterns) + 1;
        let patterns: Vec<Pattern> = patterns.into_iter().map(|p| *p.it).collect();
        let span = patterns.iter().fold(Span::NONE, |span, p| span.to(p.span));
        Node::new(Pattern { kind: PatternKind::Or(patterns), span }, depth)
    }

    /// `(a, b)`, or `(w, b = bias)`
    pub fn tuple_pattern(
        &mut self,
        lo: u32,
        elements: Vec<Node<Part>>,
        comma: bool,
        hi: u32,
    ) -> Node<Pattern> {
        let span = Span::new(lo, hi);
        if elements.iter().any(|e| matches!(e.it.element, Element::Field(..))) {
            return self.record_pattern(span, elements);
        }
        let (mut patterns, rest, depth) = self.elements(elements);
        if patterns.len() == 1 && rest.is_none() && !comma {
            // Parentheses around a single pattern only group.
            if let Some(one) = patterns.pop() {
                return Node::new(one, depth);
            }
        }
        Node::new(Pattern { kind: PatternKind::Tuple(patterns, rest), span }, depth + 1)
    }

    /// `[a, b]`
    pub fn list_pattern(&mut self, lo: u32, elements: Vec<Node<Part>>, hi: u32) -> Node<Pattern> {
        for Part { element, span } in elements.iter().map(|e| &*e.it) {
            if matches!(element, Element::Field(..)) {
                self.errors.push(error::named_in_list(*span));
            }
        }
        let (patterns, rest, depth) = self.elements(elements);
        Node::new(Pattern { kind: PatternKind::List(patterns, rest), span: Span::new(lo, hi) }, depth + 1)
    }

    fn elements(&mut self, elements: Vec<Node<Part>>) -> (Vec<Pattern>, Option<Rest>, u32) {
        let (mut patterns, mut rest, mut depth) = (Vec::new(), RestSeen::default(), 0);
        for Part { element, span } in elements.into_iter().map(|e| *e.it) {
            match element {
                Element::One(p) | Element::Field(_, p) => {
                    depth = depth.max(p.depth);
                    patterns.push(*p.it);
                }
                Element::Rest(name) => self.rest(&mut rest, patterns.len(), name, span),
            }
        }
        (patterns, rest.rest, depth)
    }

    fn record_pattern(&mut self, span: Span, elements: Vec<Node<Part>>) -> Node<Pattern> {
        let (mut fields, mut rest, mut depth) = (Vec::<(Option<Name>, _)>::new(), RestSeen::default(), 0);
        for Part { element, span } in elements.into_iter().map(|e| *e.it) {
            match element {
                Element::Field(name, p) => {
                    depth = depth.max(p.depth);
                    fields.push((Some(name), *p.it));
                }
                Element::One(p) => {
                    // By position first, then by name, as in calls.
                    if fields.last().is_some_and(|(name, _)| name.is_some()) {
                        self.errors.push(error::pattern_after_name(span, self.source(span.lo, span.hi)));
                    }
                    depth = depth.max(p.depth);
                    fields.push((None, *p.it));
                }
                Element::Rest(name) => self.rest(&mut rest, fields.len(), name, span),
            }
        }
        Node::new(Pattern { kind: PatternKind::Record(fields, rest.rest), span }, depth + 1)
    }

    fn rest(&mut self, seen: &mut RestSeen, at: usize, name: Option<Name>, span: Span) {
        if let Some(first) = seen.span {
            self.errors.push(error::two_rests(span, first));
            return;
        }
        let name = name.filter(|n| &*n.text != "_");
        *seen = RestSeen { rest: Some(Rest { at, name }), span: Some(span) };
    }

    /// Reports refutable parts of a pattern.
    pub(super) fn always_fits(&mut self, pattern: &Pattern, place: &str) {
        match &pattern.kind {
            PatternKind::Discard | PatternKind::Bind(_) => {}
            PatternKind::Tuple(parts, _) | PatternKind::List(parts, _) => {
                for part in parts {
                    self.always_fits(part, place);
                }
            }
            PatternKind::Record(fields, _) => {
                for (_, part) in fields {
                    self.always_fits(part, place);
                }
            }
            PatternKind::Value(e) if !matches!(e.kind, ExprKind::Int(_)) && self.is_word(pattern.span) => {
                let error = error::reserved_name(pattern.span, self.source(pattern.span.lo, pattern.span.hi));
                self.errors.push(error);
            }
            PatternKind::Value(_) => self.errors.push(error::refutable(pattern.span, "a value", place)),
            PatternKind::Or(_) => self.errors.push(error::refutable(pattern.span, "alternatives", place)),
        }
    }
}

#[derive(Default)]
struct RestSeen {
    rest: Option<Rest>,
    span: Option<Span>,
}
