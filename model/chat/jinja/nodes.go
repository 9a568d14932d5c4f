package jinja

type expr interface {
	eval(r *run, s *scope) value
	at() int // line
}

// stmt is a statement, or text.
type stmt interface {
	exec(r *run, s *scope) signal
	at() int
}

// signal is how a statement ends.
type signal uint8

const (
	proceed signal = iota
	breakLoop
	continueLoop
)

type line int

func (l line) at() int { return int(l) }

type (
	textStmt struct {
		line
		text string
	}
	printStmt struct {
		line
		value expr
	}
	setStmt struct {
		line
		target *target
		value  expr
	}
	// captureStmt is a set block, a filter block or a generation block.
	captureStmt struct {
		line
		own
		target *target // or nil, which prints
		filter expr    // of a captured, or nil
		body   []stmt
	}
	forStmt struct {
		line
		own
		ownElse   own
		target    *target
		iterable  expr
		filter    expr // or nil
		body      []stmt
		otherwise []stmt
	}
	ifStmt struct {
		line
		branches  []branch
		otherwise []stmt
	}
	withStmt struct {
		line
		own
		targets []*target
		values  []expr
		body    []stmt
	}
	macroStmt struct {
		line
		macro *macroNode
	}
	callStmt struct {
		line
		call  *callExpr
		block *macroNode
	}
	jumpStmt struct {
		line
		signal signal
	}
)

type branch struct {
	test expr
	body []stmt
}

// target is what is assigned to: a name, an attribute of a namespace, or several.
type target struct {
	line
	name      string
	attribute string
	parts     []*target // if several
	tuple     bool
}

// macroNode is a macro, or the body of a call block.
type macroNode struct {
	name       string
	parameters []string
	defaults   []expr // of the last parameters
	body       []stmt
	own

	// Which of the names that are not declared the body uses.
	caller, kwargs, varargs bool
}

type (
	constExpr struct {
		line
		value value
	}
	nameExpr struct {
		line
		name string
	}
	listExpr struct {
		line
		kind  string
		items []expr
	}
	dictExpr struct {
		line
		keys, values []expr
	}
	unaryExpr struct {
		line
		op string // not - +
		x  expr
	}
	binaryExpr struct {
		line
		op   string // + - * / // %
		a, b expr
	}
	logicExpr struct {
		line
		or   bool
		a, b expr
	}
	concatExpr struct {
		line
		parts []expr
	}
	compareExpr struct {
		line
		first expr
		rest  []comparison
	}
	condExpr struct {
		line
		test, then, otherwise expr // otherwise may be nil
	}
	attrExpr struct {
		line
		x    expr
		name string
	}
	itemExpr struct {
		line
		x, index expr
	}
	sliceExpr struct {
		line
		x                 expr
		start, stop, step expr // may be nil
	}
	callExpr struct {
		line
		f    expr
		args callArgs
	}
	filterExpr struct {
		line
		x    expr
		name string
		args callArgs
	}
	testExpr struct {
		line
		x    expr
		name string
		args callArgs
	}
	// captured is the text of a captureStmt.
	captured struct{ line }
)

type comparison struct {
	op string // == != < <= > >= in notin
	x  expr
}

// callArgs are the arguments of a call: in order, by name, *list and **dict.
type callArgs struct {
	args    []expr
	names   []string
	named   []expr
	list    expr // or nil
	mapping expr // or nil
}
