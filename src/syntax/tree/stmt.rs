//! Statements, functions and their parameters.

use super::*;

impl<'s> Tree<'s> {
    /// A whole text.
    pub fn program(&mut self, lo: u32, body: Body, hi: u32) -> Block {
        Block { body: body.stmts, span: Span::new(lo, hi) }
    }

    /// `{ ... }`
    pub fn block(&mut self, lo: u32, body: Body, hi: u32) -> Node<Block> {
        let span = Span::new(lo, hi);
        if self.fits(body.depth + 1, span) {
            Node::new(Block { body: body.stmts, span }, body.depth + 1)
        } else {
            Node::leaf(Block { body: Vec::new(), span })
        }
    }

    /// A `;` after the last statement: the statement's value is not the block's value.
    pub fn discard(&mut self, mut body: Body) -> Body {
        if let Some(last) = body.stmts.pop() {
            let kind = match last.kind {
                StmtKind::Expr(e) => StmtKind::Discard(e),
                kind => kind,
            };
            body.stmts.push(Stmt { kind, span: last.span });
        }
        body
    }

    /// `let p = e`
    pub fn let_stmt(&mut self, lo: u32, p: Node<Pattern>, e: Node<Expr>) -> Node<Stmt> {
        self.always_fits(&p.it, "`let`");
        let (hi, depth) = (e.it.span.hi, p.depth.max(e.depth));
        self.stmt(StmtKind::Let(*p.it, *e.it), lo, hi, depth)
    }

    /// `e`
    pub fn expr_stmt(&mut self, e: Node<Expr>) -> Node<Stmt> {
        let span = e.it.span;
        self.stmt(StmtKind::Expr(*e.it), span.lo, span.hi, e.depth)
    }

    /// `target = e`
    pub fn assign(&mut self, target: Node<Expr>, e: Node<Expr>) -> Node<Stmt> {
        self.check_target(&target.it, true);
        let (lo, hi) = (target.it.span.lo, e.it.span.hi);
        self.stmt(StmtKind::Assign(*target.it, *e.it), lo, hi, target.depth.max(e.depth))
    }

    /// `target += e`; the operator is at `op_lo..op_hi`.
    pub fn update(&mut self, target: Node<Expr>, op_lo: u32, op_hi: u32, e: Node<Expr>) -> Node<Stmt> {
        self.check_target(&target.it, false);
        let op = match self.source(op_lo, op_hi) {
            "+=" => Binary::Add,
            "-=" => Binary::Sub,
            "*=" => Binary::Mul,
            "/=" => Binary::Div,
            "//=" => Binary::FloorDiv,
            "%=" => Binary::Mod,
            "@=" => Binary::MatMul,
            "**=" => Binary::Pow,
            "++=" => Binary::Join,
            "&=" => Binary::BitAnd,
            "|=" => Binary::BitOr,
            "^=" => Binary::BitXor,
            "<<=" => Binary::Shl,
            _ => Binary::Shr,
        };
        let (lo, hi) = (target.it.span.lo, e.it.span.hi);
        self.stmt(StmtKind::Update(*target.it, op, *e.it), lo, hi, target.depth.max(e.depth))
    }

    fn check_target(&mut self, target: &Expr, several: bool) {
        match &target.kind {
            ExprKind::Name(_) | ExprKind::Index(..) | ExprKind::Member(..) | ExprKind::Error => {}
            ExprKind::Tuple(items) | ExprKind::List(items) if several && !items.is_empty() => {
                for item in items {
                    match item {
                        Item::One(e) => self.check_target(e, true),
                        Item::Spread(e) => {
                            let error = error::bad_target(e.span, "a spread");
                            self.errors.push(error);
                        }
                    }
                }
            }
            kind => {
                let what = match kind {
                    ExprKind::Call(..) | ExprKind::Pipe(..) => "the result of a call",
                    ExprKind::Binary(..)
                    | ExprKind::Chain(..)
                    | ExprKind::Unary(..)
                    | ExprKind::And(..)
                    | ExprKind::Or(..) => "the result of an operator",
                    ExprKind::Record(_) => "a record",
                    ExprKind::Tuple(_) | ExprKind::List(_) | ExprKind::Paren(_) => "this",
                    ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Str(_) => "a literal",
                    _ => "this expression",
                };
                self.errors.push(error::bad_target(target.span, what));
            }
        }
    }

    /// `fn name(params) { ... }`
    pub fn fn_stmt(
        &mut self,
        lo: u32,
        name: Name,
        params: Vec<Node<Param>>,
        body: Node<Block>,
    ) -> Node<Stmt> {
        let (hi, depth) = (body.it.span.hi, body.depth.max(depth_of(&params)));
        let params = self.params(params);
        let doc = self.doc(lo);
        let function = Function { params, body: *body.it, doc };
        self.stmt(StmtKind::Fn(name, Rc::new(function)), lo, hi, depth)
    }

    /// `for p in e { ... }`
    pub fn for_stmt(&mut self, lo: u32, p: Node<Pattern>, e: Node<Expr>, body: Node<Block>) -> Node<Stmt> {
        self.always_fits(&p.it, "`for`");
        let (hi, depth) = (body.it.span.hi, p.depth.max(e.depth).max(body.depth));
        self.stmt(StmtKind::For(*p.it, *e.it, *body.it), lo, hi, depth)
    }

    /// `while e { ... }`
    pub fn while_stmt(&mut self, lo: u32, e: Node<Expr>, body: Node<Block>) -> Node<Stmt> {
        let (hi, depth) = (body.it.span.hi, e.depth.max(body.depth));
        self.stmt(StmtKind::While(*e.it, *body.it), lo, hi, depth)
    }

    /// `break` or `continue`
    pub fn jump(&mut self, kind: StmtKind, lo: u32, hi: u32) -> Node<Stmt> {
        self.stmt(kind, lo, hi, 0)
    }

    /// `return [e]`
    pub fn return_stmt(&mut self, lo: u32, e: Option<Node<Expr>>, hi: u32) -> Node<Stmt> {
        let depth = option_depth(&e);
        self.stmt(StmtKind::Return(e.map(|e| *e.it)), lo, hi, depth)
    }

    /// `throw e`
    pub fn throw(&mut self, lo: u32, e: Node<Expr>) -> Node<Stmt> {
        let hi = e.it.span.hi;
        self.stmt(StmtKind::Throw(*e.it), lo, hi, e.depth)
    }

    /// `defer e`
    pub fn defer(&mut self, lo: u32, e: Node<Expr>) -> Node<Stmt> {
        let hi = e.it.span.hi;
        self.stmt(StmtKind::Defer(*e.it), lo, hi, e.depth)
    }

    /// `import name [as other]`
    pub fn import_library(&mut self, lo: u32, name: Name, other: Option<Name>) -> Node<Stmt> {
        let (path, path_span) = (name.text.clone(), name.span);
        let name = other.unwrap_or(name);
        let hi = name.span.hi;
        self.stmt(StmtKind::Import(Import { path, file: false, path_span, name }), lo, hi, 0)
    }

    /// `import "path" [as name]`
    pub fn import_file(&mut self, lo: u32, path: Node<Expr>, name: Option<Name>) -> Node<Stmt> {
        let path_span = path.it.span;
        let Some(path) = self.plain_string(&path.it, "an import's path") else {
            return self.stmt(StmtKind::Error, lo, path_span.hi, 0);
        };
        let name = name.unwrap_or_else(|| {
            let file = path.rsplit(['/', '\\']).next().unwrap_or(&path);
            let stem = file.strip_suffix(".rnl").unwrap_or(file);
            if !crate::syntax::is_name(stem) {
                self.errors.push(error::import_name(path_span, &path));
            }
            Name { text: stem.into(), span: path_span }
        });
        let hi = name.span.hi;
        self.stmt(StmtKind::Import(Import { path, file: true, path_span, name }), lo, hi, 0)
    }

    /// `test "name" { ... }`
    pub fn test(&mut self, lo: u32, name: Node<Expr>, body: Node<Block>) -> Node<Stmt> {
        let hi = body.it.span.hi;
        match self.plain_string(&name.it, "a test's name") {
            Some(name) => self.stmt(StmtKind::Test(name, *body.it), lo, hi, body.depth),
            None => self.stmt(StmtKind::Error, lo, hi, 0),
        }
    }

    fn plain_string(&mut self, e: &Expr, what: &str) -> Option<Rc<str>> {
        if let ExprKind::Str(pieces) = &e.kind {
            match pieces.as_slice() {
                [] => return Some("".into()),
                [StrPiece::Text(text)] => return Some(text.clone()),
                _ => {}
            }
        }
        self.errors.push(error::plain_string(e.span, what));
        None
    }

    /// A statement with an error that was already reported.
    pub fn error_stmt(&mut self, lo: u32, hi: u32) -> Node<Stmt> {
        self.stmt(StmtKind::Error, lo, hi, 0)
    }

    /// A name with its span.
    pub fn name(&mut self, lo: u32, hi: u32) -> Name {
        let text = self.source(lo, hi);
        Name { text: self.shared(text), span: Span::new(lo, hi) }
    }

    /// `p` or `p = e`
    pub fn param(&mut self, p: Node<Pattern>, default: Option<Node<Expr>>) -> Node<Param> {
        self.always_fits(&p.it, "a parameter");
        let depth = p.depth.max(option_depth(&default));
        Node::new(Param { pattern: *p.it, default: default.map(|e| *e.it), rest: false }, depth)
    }

    /// `*name`
    pub fn rest_param(&mut self, name: Name) -> Node<Param> {
        let pattern = *self.bind(name).it;
        Node::leaf(Param { pattern, default: None, rest: true })
    }

    fn params(&mut self, params: Vec<Node<Param>>) -> Vec<Param> {
        let (mut rest, mut default) = (false, false);
        for param in params.iter().map(|p| &*p.it) {
            let span = param.pattern.span;
            let name = match &param.pattern.kind {
                PatternKind::Bind(name) => Some(&*name.text),
                _ => None,
            };
            if rest && param.rest {
                self.errors.push(error::two_rest_params(span));
            } else if rest && name.is_none() {
                self.errors.push(error::unnamed_param(span));
            } else if default && !rest && !param.rest && param.default.is_none() {
                let name = name.unwrap_or_else(|| self.source(span.lo, span.hi));
                let error = error::param_without_default(span, name);
                self.errors.push(error);
            }
            rest |= param.rest;
            default |= param.default.is_some();
        }
        params.into_iter().map(|p| *p.it).collect()
    }

    /// `|params| e`
    pub fn lambda(&mut self, lo: u32, params: Vec<Node<Param>>, e: Node<Expr>) -> Node<Expr> {
        let span = Span::new(lo, e.it.span.hi);
        let depth = e.depth.max(depth_of(&params));
        let params = self.params(params);
        let body = match *e.it {
            Expr { kind: ExprKind::Block(block), .. } => block,
            e => Block { span: e.span, body: vec![Stmt { span: e.span, kind: StmtKind::Expr(e) }] },
        };
        self.expr(ExprKind::Lambda(Rc::new(Function { params, body, doc: None })), span, depth)
    }

    /// The comment lines directly above the line that starts with `lo`.
    fn doc(&self, lo: u32) -> Option<Rc<str>> {
        let mut at = (lo - self.base) as usize;
        let mut comments = &self.comments[..self.comments.partition_point(|c| c.hi as usize <= at)];
        let mut lines = Vec::new();
        loop {
            // Only blanks and one line end may separate the comment and the code below it, and the comment
            // must be alone on its line.
            let above = self.text[..at].trim_end_matches([' ', '\t']);
            let above = above.strip_suffix('\n').map(|t| t.strip_suffix('\r').unwrap_or(t))?;
            let found = comments.split_last().filter(|(c, _)| c.hi as usize == above.len());
            let Some((comment, before)) = found else { break };
            let line = &self.text[comment.lo as usize..comment.hi as usize];
            at = comment.lo as usize;
            let blank = self.text[..at].trim_end_matches([' ', '\t']);
            if !(blank.is_empty() || blank.ends_with('\n')) {
                break;
            }
            let line = line.trim_start_matches('#');
            lines.push(line.strip_prefix(' ').unwrap_or(line).trim_end());
            comments = before;
            if blank.is_empty() {
                break;
            }
        }
        lines.reverse();
        (!lines.is_empty()).then(|| lines.join("\n").into())
    }
}
