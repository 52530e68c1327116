//! Expressions of one token, and strings.

use super::*;
use crate::syntax::literal;

impl<'s> Tree<'s> {
    /// `42`
    pub fn int(&mut self, lo: u32, hi: u32) -> Node<Expr> {
        let span = Span::new(lo, hi);
        let kind = match literal::int(self.source(lo, hi), span) {
            Ok(value) => {
                if value > i64::MAX as u64 {
                    self.minimums.push(span);
                }
                ExprKind::Int(value as i64)
            }
            Err(error) => {
                self.errors.push(error);
                ExprKind::Error
            }
        };
        self.leaf(kind, lo, hi)
    }

    /// `1.5`
    pub fn float(&mut self, lo: u32, hi: u32) -> Node<Expr> {
        let kind = match literal::float(self.source(lo, hi), Span::new(lo, hi)) {
            Ok(value) => ExprKind::Float(value),
            Err(error) => {
                self.errors.push(error);
                ExprKind::Error
            }
        };
        self.leaf(kind, lo, hi)
    }

    /// `cuda` or `cuda:1`
    pub fn cuda(&mut self, lo: u32, hi: u32) -> Node<Expr> {
        let text = self.source(lo, hi);
        let device = match text.split_once(':').map(|(_, index)| index.parse()) {
            None => DeviceLit::Current,
            Some(Ok(index)) => DeviceLit::Cuda(index),
            Some(Err(_)) => {
                self.errors.push(error::device_range(Span::new(lo, hi), text));
                DeviceLit::Current
            }
        };
        self.leaf(ExprKind::Device(device), lo, hi)
    }

    /// `f32`
    pub fn dtype(&mut self, lo: u32, hi: u32) -> Node<Expr> {
        let text = self.source(lo, hi);
        let name = self.shared(text);
        self.leaf(ExprKind::Dtype(name), lo, hi)
    }

    /// `"..."`
    pub fn string(&mut self, lo: u32, pieces: Vec<Node<StrPiece>>, hi: u32) -> Node<Expr> {
        let depth = depth_of(&pieces);
        let pieces = pieces.into_iter().map(|p| *p.it).collect();
        self.expr(ExprKind::Str(pieces), Span::new(lo, hi), depth)
    }

    /// The characters of a string between two interpolations.
    pub fn text(&mut self, lo: u32, hi: u32) -> Node<StrPiece> {
        let text = literal::unescape(self.source(lo, hi), lo, &mut |error| self.errors.push(error));
        Node::new(StrPiece::Text(text.into()), 0)
    }

    /// The characters of a raw string.
    pub fn raw_text(&mut self, lo: u32, hi: u32) -> Node<StrPiece> {
        Node::new(StrPiece::Text(self.source(lo, hi).into()), 0)
    }

    /// `{e:format}`
    pub fn interpolation(&mut self, e: Node<Expr>, format: Vec<Node<StrPiece>>) -> Node<StrPiece> {
        let depth = e.depth.max(depth_of(&format));
        Node::new(StrPiece::Expr(*e.it, format.into_iter().map(|p| *p.it).collect()), depth)
    }
}
