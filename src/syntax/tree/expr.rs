//! Expressions that have parts.

use super::*;

impl<'s> Tree<'s> {
    /// An expression without parts.
    pub fn leaf(&mut self, kind: ExprKind, lo: u32, hi: u32) -> Node<Expr> {
        Node::leaf(Expr { kind, span: Span::new(lo, hi) })
    }

    fn two(
        &mut self,
        a: Node<Expr>,
        b: Node<Expr>,
        kind: impl FnOnce(Box<Expr>, Box<Expr>) -> ExprKind,
    ) -> Node<Expr> {
        let (span, depth) = (a.it.span.to(b.it.span), a.depth.max(b.depth));
        let kind = kind(boxed(a), boxed(b));
        self.expr(kind, span, depth)
    }

    /// `a |> b`
    pub fn pipe(&mut self, a: Node<Expr>, b: Node<Expr>) -> Node<Expr> {
        self.two(a, b, ExprKind::Pipe)
    }

    /// `a or b`
    pub fn or(&mut self, a: Node<Expr>, b: Node<Expr>) -> Node<Expr> {
        self.two(a, b, ExprKind::Or)
    }

    /// `a and b`
    pub fn and(&mut self, a: Node<Expr>, b: Node<Expr>) -> Node<Expr> {
        self.two(a, b, ExprKind::And)
    }

    /// `a + b`
    pub fn binary(&mut self, a: Node<Expr>, op: Binary, b: Node<Expr>) -> Node<Expr> {
        self.two(a, b, |a, b| ExprKind::Binary(op, a, b))
    }

    /// `a < b`, or one more comparison of a chain.
    pub fn compare(&mut self, a: Node<Expr>, op: Binary, b: Node<Expr>) -> Node<Expr> {
        use Binary::*;
        let is_comparison = |op: Binary| matches!(op, Eq | Ne | Lt | Le | Gt | Ge);
        let span = a.it.span.to(b.it.span);
        let chains = match &a.it.kind {
            ExprKind::Binary(In | NotIn, ..) => false,
            ExprKind::Binary(before, ..) if !is_comparison(*before) => return self.binary(a, op, b),
            ExprKind::Binary(..) | ExprKind::Chain(..) => is_comparison(op),
            _ => return self.binary(a, op, b),
        };
        if !chains {
            self.errors.push(error::chained_membership(span));
            return self.binary(a, op, b);
        }
        let depth = a.depth.max(b.depth);
        let kind = match a.it.kind {
            ExprKind::Chain(first, mut rest) => {
                rest.push((op, *b.it));
                ExprKind::Chain(first, rest)
            }
            ExprKind::Binary(before, first, second) => {
                ExprKind::Chain(first, vec![(before, *second), (op, *b.it)])
            }
            other => other,
        };
        self.expr(kind, span, depth)
    }

    /// `e on place`
    pub fn on(&mut self, e: Node<Expr>, place: Node<Expr>) -> Node<Expr> {
        self.two(e, place, ExprKind::On)
    }

    /// `-e`, `~e`, `not e`
    pub fn unary(&mut self, lo: u32, op: Unary, e: Node<Expr>) -> Node<Expr> {
        let span = Span::new(lo, e.it.span.hi);
        if op == Unary::Neg
            && matches!(e.it.kind, ExprKind::Int(i64::MIN))
            && let Some(at) = self.minimums.iter().rposition(|m| *m == e.it.span)
        {
            self.minimums.remove(at);
            return Node::leaf(Expr { kind: ExprKind::Int(i64::MIN), span });
        }
        let depth = e.depth;
        self.expr(ExprKind::Unary(op, boxed(e)), span, depth)
    }

    /// `a..b by s`, each part optional
    pub fn range(
        &mut self,
        lo: u32,
        a: Option<Node<Expr>>,
        b: Option<Node<Expr>>,
        step: Option<Node<Expr>>,
        hi: u32,
    ) -> Node<Expr> {
        let depth = option_depth(&a).max(option_depth(&b)).max(option_depth(&step));
        let kind = ExprKind::Range(a.map(boxed), b.map(boxed), step.map(boxed));
        self.expr(kind, Span::new(lo, hi), depth)
    }

    /// `f(args)`
    pub fn call(&mut self, f: Node<Expr>, args: Args, hi: u32) -> Node<Expr> {
        let mut named = false;
        for arg in &args.list {
            match arg {
                Arg::Named(..) => named = true,
                Arg::One(e) if named => self.errors.push(error::place_after_name(e.span)),
                _ => {}
            }
        }
        let (span, depth) = (Span::new(f.it.span.lo, hi), f.depth.max(args.depth));
        self.expr(ExprKind::Call(boxed(f), args.list), span, depth)
    }

    /// `e[indices]`, or `f32[elements]`
    pub fn index(&mut self, e: Node<Expr>, indices: Vec<Node<Expr>>, hi: u32) -> Node<Expr> {
        let (span, depth) = (Span::new(e.it.span.lo, hi), e.depth.max(depth_of(&indices)));
        let indices = indices.into_iter().map(|i| *i.it);
        let kind = match e.it.kind {
            ExprKind::Dtype(dtype) => {
                // Between the brackets of a literal `..x` is a spread, as in any list.
                let items = indices.map(|i| match i.kind {
                    ExprKind::Range(None, Some(e), None) => Item::Spread(*e),
                    _ => Item::One(i),
                });
                ExprKind::Typed(dtype, items.collect())
            }
            kind => ExprKind::Index(Box::new(Expr { kind, span: e.it.span }), indices.collect()),
        };
        if let ExprKind::Index(_, indices) = &kind
            && indices.is_empty()
        {
            // A missing closing bracket has zero width.
            let closed = self.text[..(hi - self.base) as usize].ends_with(']');
            let place = Span::new(hi - u32::from(closed), hi);
            self.errors.push(error::unexpected(place, "an index", "`]`"));
        }
        self.expr(kind, span, depth)
    }

    /// `e.name`
    pub fn member(&mut self, e: Node<Expr>, name: Name) -> Node<Expr> {
        let (span, depth) = (e.it.span.to(name.span), e.depth);
        self.expr(ExprKind::Member(boxed(e), name), span, depth)
    }

    /// `x`
    pub fn variable(&mut self, lo: u32, hi: u32) -> Node<Expr> {
        let text = self.source(lo, hi);
        let name = self.shared(text);
        self.leaf(ExprKind::Name(name), lo, hi)
    }

    /// `(e)`, a tuple or a record
    pub fn paren(&mut self, lo: u32, args: Args, hi: u32) -> Node<Expr> {
        let span = Span::new(lo, hi);
        let depth = args.depth;
        let any = |f: fn(&Arg) -> bool| args.list.iter().any(f);
        let named = any(|a| matches!(a, Arg::Named(..)));
        let spreads_alone = !args.list.is_empty() && !any(|a| !matches!(a, Arg::Spread(_)));
        if named || spreads_alone {
            let mut fields = Vec::with_capacity(args.list.len());
            for arg in args.list {
                match arg {
                    Arg::Named(name, e) => fields.push(Field::Named(name, e)),
                    Arg::Spread(e) => fields.push(Field::Spread(e)),
                    Arg::One(e) => self.errors.push(error::mixed_record(e.span)),
                }
            }
            return self.expr(ExprKind::Record(fields), span, depth);
        }
        let mut items: Vec<Item> = args.list.into_iter().filter_map(item).collect();
        if items.len() == 1 && !args.trailing_comma {
            match items.pop() {
                Some(Item::One(e)) => return self.expr(ExprKind::Paren(Box::new(e)), span, depth),
                other => items.extend(other),
            }
        }
        self.expr(ExprKind::Tuple(items), span, depth)
    }

    /// `[a, b]`
    pub fn list(&mut self, lo: u32, args: Args, hi: u32) -> Node<Expr> {
        for arg in &args.list {
            if let Arg::Named(name, e) = arg {
                self.errors.push(error::named_in_list(name.span.to(e.span)));
            }
        }
        let items = args.list.into_iter().filter_map(item).collect();
        self.expr(ExprKind::List(items), Span::new(lo, hi), args.depth)
    }

    /// `{ ... }` as a value
    pub fn block_expr(&mut self, block: Node<Block>) -> Node<Expr> {
        let span = block.it.span;
        self.expr(ExprKind::Block(*block.it), span, block.depth)
    }

    /// Adds an arm; the arms carry the position of `if`.
    pub fn if_arm(
        &mut self,
        mut arms: Node<(u32, Vec<(Expr, Block)>)>,
        e: Node<Expr>,
        block: Node<Block>,
    ) -> Node<(u32, Vec<(Expr, Block)>)> {
        arms.depth = arms.depth.max(e.depth).max(block.depth);
        arms.it.1.push((*e.it, *block.it));
        arms
    }

    /// `if ... [else block]`
    pub fn if_expr(
        &mut self,
        arms: Node<(u32, Vec<(Expr, Block)>)>,
        last: Option<Node<Block>>,
    ) -> Node<Expr> {
        let depth = arms.depth.max(option_depth(&last));
        let last = last.map(|b| *b.it);
        let (lo, arms) = *arms.it;
        let end = last.as_ref().or(arms.last().map(|(_, b)| b)).map_or(lo, |b| b.span.hi);
        self.expr(ExprKind::If(arms, last), Span::new(lo, end), depth)
    }

    /// `with contexts { ... }`
    pub fn with(&mut self, lo: u32, contexts: Vec<Node<Expr>>, block: Node<Block>) -> Node<Expr> {
        let (span, depth) = (Span::new(lo, block.it.span.hi), block.depth.max(depth_of(&contexts)));
        let contexts = contexts.into_iter().map(|c| *c.it).collect();
        self.expr(ExprKind::With(contexts, *block.it), span, depth)
    }

    /// `try { } catch name { }`
    pub fn try_expr(
        &mut self,
        lo: u32,
        body: Node<Block>,
        name: Option<Name>,
        catch: Node<Block>,
    ) -> Node<Expr> {
        let (span, depth) = (Span::new(lo, catch.it.span.hi), body.depth.max(catch.depth));
        self.expr(ExprKind::Try(*body.it, name, *catch.it), span, depth)
    }

    /// `match e { arms }`
    pub fn match_expr(&mut self, lo: u32, e: Node<Expr>, arms: Vec<Node<Arm>>, hi: u32) -> Node<Expr> {
        let depth = e.depth.max(depth_of(&arms));
        let arms = arms.into_iter().map(|a| *a.it).collect();
        self.expr(ExprKind::Match(boxed(e), arms), Span::new(lo, hi), depth)
    }

    /// `pattern if guard => body`
    pub fn arm(&mut self, p: Node<Pattern>, guard: Option<Node<Expr>>, body: Node<Expr>) -> Node<Arm> {
        let depth = p.depth.max(option_depth(&guard)).max(body.depth);
        Node::new(Arm { pattern: *p.it, guard: guard.map(|g| *g.it), body: *body.it }, depth)
    }

    /// `return e`, `x = e` and similar as the body of an arm
    pub fn statement_block(&mut self, stmt: Node<Stmt>) -> Node<Expr> {
        let (span, depth) = (stmt.it.span, stmt.depth);
        self.expr(ExprKind::Block(Block { body: vec![*stmt.it], span }), span, depth)
    }
}

fn item(arg: Arg) -> Option<Item> {
    match arg {
        Arg::One(e) => Some(Item::One(e)),
        Arg::Spread(e) => Some(Item::Spread(e)),
        Arg::Named(..) => None,
    }
}
