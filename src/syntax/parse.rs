//! Parses tokens to a tree, and continues after errors.
//!
//! A source without errors is parsed in one run. Otherwise each top-level statement is parsed separately: a failure is
//! reported, the innermost statement around it is removed, and the rest of the enclosing statement is parsed again. So
//! one report contains several errors, and none is a consequence of another.

use super::ast::{Block, Stmt, StmtKind};
use super::consequences::{Finding, causes};
use super::explain::explain;
use super::grammar::ProgramParser;
use super::scan::{self, Ended, Scanned};
use super::tokens::{Comment, T, Token};
use super::tree::Tree;
use crate::base::{Error, Span, stop};
use lalrpop_util::ParseError;
use std::cell::Cell;

/// Maximum number of errors in a report.
const MAX_ERRORS: usize = 30;

/// Maximum number of runs per top-level statement.
const MAX_RUNS: usize = 2 * MAX_ERRORS;

/// A source as a tree, with its errors.
#[derive(Debug)]
pub struct Parsed {
    /// The statements, with `StmtKind::Error` for invalid ones.
    pub block: Block,
    /// The comments, in order, as offsets into the text.
    pub comments: Vec<Comment>,
    /// The errors in source order.
    pub errors: Vec<Error>,
    /// True if the only error is an early end: more text may complete it.
    pub incomplete: bool,
    /// The reason why the text was not read to its end, if any; the other fields are then meaningless.
    pub ended: Option<Ended>,
}

/// Parses a source whose first byte has the position `base` (see `SourceMap::add`).
///
/// # Errors
///
/// None: syntax errors (E01xx) are in [`Parsed::errors`].
pub fn parse(base: u32, text: &str) -> Parsed {
    stop::masked(|| parse_within(base, text, usize::MAX))
}

/// As [`parse`], for at most `most` tokens, and only until the thread is asked to stop: see
/// [`Parsed::ended`].
pub fn parse_within(base: u32, text: &str, most: usize) -> Parsed {
    let Scanned { tokens, comments, errors, open_end, ended } = scan::scan_within(base, text, most);
    if ended.is_some() {
        let block = Block { body: Vec::new(), span: Span::new(base, base + text.len() as u32) };
        return Parsed { block, comments, errors: Vec::new(), incomplete: false, ended };
    }
    let mut tree = Tree::new(base, text, &comments);
    let (mut block, mut incomplete) = (Block { body: Vec::new(), span: Span::NONE }, open_end);
    let mut parse_errors = Vec::new();
    match run(&mut tree, base, &tokens) {
        Ok(whole) => block = whole,
        Err(_) => {
            let mut recovery = Recovery {
                tree: &mut tree,
                base,
                text,
                errors: Vec::new(),
                others: 0,
                ends_early: false,
                open_end,
            };
            block.body = recovery.statements(&tokens);
            incomplete |= recovery.ends_early;
            incomplete &= recovery.others == 0;
            parse_errors = recovery.errors;
        }
    }
    tree.finish();
    incomplete &= tree.errors.is_empty() && errors.len() <= usize::from(open_end);
    let ended = tree.ended.then_some(Ended::Asked);
    let of_tree = tree.errors.into_iter().map(Finding::from);
    let mut findings: Vec<Finding> = errors.into_iter().chain(parse_errors).chain(of_tree).collect();
    findings.sort_by_key(|finding| finding.error.span().lo);
    let mut errors = causes(findings, base, text);
    errors.truncate(MAX_ERRORS);
    block.span = Span::new(base, base + text.len() as u32);
    Parsed { block, comments, errors, incomplete, ended }
}

/// The position where a run of the grammar stopped, and what is accepted there.
struct Failure {
    /// The token; at the end, the number of tokens.
    index: usize,
    expected: Vec<String>,
}

fn run(tree: &mut Tree<'_>, base: u32, tokens: &[Token]) -> Result<Block, Failure> {
    let errors = tree.errors.len();
    let (read, ended) = (Cell::new(0), Cell::new(false));
    let stream = tokens.iter().map(|t| {
        read.set(read.get() + 1);
        if read.get() % scan::STEPS == 0 && stop::reason().is_some() {
            ended.set(true);
            return Err(());
        }
        Ok((base + t.lo, t.kind, base + t.hi))
    });
    let parsed = ProgramParser::new().parse(tree, stream);
    tree.ended |= ended.get();
    parsed.map_err(|error| {
        tree.forget(errors);
        match error {
            ParseError::UnrecognizedToken { expected, .. } => Failure { index: read.get() - 1, expected },
            ParseError::UnrecognizedEof { expected, .. } => Failure { index: tokens.len(), expected },
            // A token kind that the grammar does not contain.
            _ => Failure { index: read.get().saturating_sub(1), expected: Vec::new() },
        }
    })
}

struct Recovery<'t, 's> {
    tree: &'t mut Tree<'s>,
    base: u32,
    text: &'s str,
    errors: Vec<Finding>,
    /// Number of failures that more text could not fix.
    others: usize,
    ends_early: bool,
    /// True if the scanner has reported that the text ends inside a bracket or string.
    open_end: bool,
}

impl Recovery<'_, '_> {
    /// Parses the top-level statements one by one.
    fn statements(&mut self, tokens: &[Token]) -> Vec<Stmt> {
        let mut body = Vec::new();
        let mut start = 0;
        while start < tokens.len() && !self.tree.ended {
            let end = statement_end(tokens, start);
            let last = end == tokens.len();
            body.extend(self.statement(tokens[start..end].to_vec(), last));
            start = end + 1;
        }
        if tokens.last().is_some_and(|t| t.kind == T::Semi)
            && let Some(Stmt { kind, .. }) = body.last_mut()
            && let StmtKind::Expr(e) = std::mem::replace(kind, StmtKind::Error)
        {
            *kind = StmtKind::Discard(e);
        }
        body
    }

    fn statement(&mut self, mut tokens: Vec<Token>, last: bool) -> Vec<Stmt> {
        let Some((first, end)) = tokens.first().map(|t| t.lo).zip(tokens.last().map(|t| t.hi)) else {
            return Vec::new();
        };
        // Enough errors are reported: skip the rest.
        let mut runs = 0;
        while self.errors.len() < MAX_ERRORS && runs < MAX_RUNS && !self.tree.ended {
            runs += 1;
            let failure = match run(self.tree, self.base, &tokens) {
                Ok(block) => return block.body,
                Err(failure) => failure,
            };
            let cut_before = tokens.get(failure.index).is_some_and(|t| t.kind == T::ErrorStmt);
            if !cut_before {
                self.report(&tokens, &failure, last);
            }
            let (lo, hi) = enclosing_statement(&tokens, failure.index, cut_before);
            if lo == 0 && hi == tokens.len() {
                break;
            }
            let (from, to) = (tokens[lo].lo, tokens[hi - 1].hi);
            tokens.splice(lo..hi, [Token { kind: T::ErrorStmt, lo: from, hi: to }]);
        }
        let span = Span::new(self.base + first, self.base + end);
        vec![Stmt { kind: StmtKind::Error, span }]
    }

    fn report(&mut self, tokens: &[Token], failure: &Failure, last: bool) {
        let found = tokens.get(failure.index);
        // The scanner has reported invalid and missing tokens.
        if found.map_or(last && self.open_end, |t| t.kind == T::Bad || t.lo == t.hi) {
            return;
        }
        if found.is_none() && last {
            let more = tokens.last().is_some_and(|t| !t.kind.can_end());
            self.ends_early |= more || failure.expected.iter().any(|e| e == "\"catch\"");
            self.others += usize::from(!self.ends_early);
        } else {
            self.others += 1;
        }
        self.errors.push(explain(self.base, self.text, tokens, failure.index, &failure.expected, last));
    }
}

/// The change in the number of open brackets at a token.
fn nesting(kind: T) -> isize {
    match kind {
        T::LParen | T::LBracket | T::LBrace | T::InterpOpen => 1,
        T::RParen | T::RBracket | T::RBrace | T::InterpClose => -1,
        _ => 0,
    }
}

/// The end of the statement that starts at `start`: a separator at its level, a closing bracket of the
/// enclosing level, or the end.
fn statement_end(tokens: &[Token], start: usize) -> usize {
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate().skip(start) {
        depth += nesting(token.kind);
        if depth < 0 || (depth == 0 && matches!(token.kind, T::Newline | T::Semi)) {
            return i;
        }
    }
    tokens.len()
}

/// The innermost statement around a token; if `outer`, the statement around its block.
fn enclosing_statement(tokens: &[Token], index: usize, outer: bool) -> (usize, usize) {
    // For each open bracket: the start of its statement.
    let mut starts = vec![0];
    let mut braces = vec![0];
    for (i, token) in tokens[..index.min(tokens.len())].iter().enumerate() {
        match token.kind {
            T::LBrace => {
                starts.push(i + 1);
                braces.push(starts.len() - 1);
            }
            T::RBrace => {
                starts.pop();
                braces.pop();
            }
            kind if nesting(kind) > 0 => starts.push(i + 1),
            kind if nesting(kind) < 0 => {
                starts.pop();
            }
            T::Newline | T::Semi if braces.last() == Some(&(starts.len() - 1)) => {
                if let Some(start) = starts.last_mut() {
                    *start = i + 1;
                }
            }
            _ => {}
        }
    }
    if outer {
        braces.pop();
    }
    let lo = braces.last().and_then(|&b| starts.get(b)).copied().unwrap_or(0);
    let hi = statement_end(tokens, lo);
    // A failure at the very start of a block's end would remove nothing; take the block's statement.
    if lo >= hi && lo > 0 && !outer {
        return enclosing_statement(tokens, index, true);
    }
    if lo >= hi { (0, tokens.len()) } else { (lo, hi) }
}
