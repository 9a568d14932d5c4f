package chat

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nikolalohinski/gonja/v2/builtins"
	blocks "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/parser"
)

// environment is what templates can use: the part of gonja's that chat templates
// need, with replacements. What is not listed does not exist for them, among it
// everything that reads other templates.
var environment = &exec.Environment{
	Context: exec.NewContext(map[string]any{
		"namespace": builtin(builtins.GlobalFunctions.Get("namespace")),
		"dict":      builtin(builtins.GlobalFunctions.Get("dict")),
		"range":     rangeFunction,
		"grouped":   grouped,
	}),
	Filters:           filters(),
	Tests:             tests(),
	ControlStructures: controlStructures(),
	Methods: exec.Methods{
		Str:   exec.NewMethodSet(stringMethods),
		List:  exec.NewMethodSet(listMethods),
		Dict:  exec.NewMethodSet(dictMethods),
		Bool:  builtins.Methods.Bool,
		Int:   builtins.Methods.Int,
		Float: builtins.Methods.Float,
	},
}

// builtin is something that gonja has; a version that lacks it cannot be used.
func builtin[T any](v T, ok bool) T {
	if !ok {
		panic(fmt.Sprintf("chat: gonja lacks a %T that templates need", v))
	}
	return v
}

func filters() *exec.FilterSet {
	set := map[string]exec.FilterFunction{
		"tojson": filterToJSON,
		"items":  filterItems,
		"trim":   filterTrim,
		"string": filterString,
	}
	for _, name := range []string{
		"abs", "attr", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "groupby",
		"indent", "int", "join", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr",
		"replace", "reverse", "round", "safe", "select", "selectattr", "sort", "sum", "title", "unique", "upper", "wordcount",
	} {
		set[name] = builtin(builtins.Filters.Get(name))
	}
	return exec.NewFilterSet(set)
}

func filterItems(_ *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value {
	switch pairs, ok := members(in); {
	case in.IsError():
		return in
	case ok:
		return exec.AsValue(items(pairs))
	case in.IsNil():
		return exec.AsValue(list{})
	}
	return exec.AsValue(errors.New("items: want a mapping"))
}

func filterTrim(_ *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	text, err := strip(in.String(), params, true, true)
	if err != nil {
		return exec.AsValue(fmt.Errorf("trim: %w", err))
	}
	return exec.AsValue(text)
}

func filterString(_ *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	return exec.AsValue(in.String())
}

func tests() *exec.TestSet {
	type context = *exec.Context
	set := map[string]exec.TestFunction{
		// gonja calls everything false that is not the boolean true.
		"false": func(_ context, in *exec.Value, _ *exec.VarArgs) (bool, error) { return in.IsBool() && !in.Bool(), nil },
		"true":  func(_ context, in *exec.Value, _ *exec.VarArgs) (bool, error) { return in.IsBool() && in.Bool(), nil },
		// Whatever has a length and items, as in Jinja.
		"sequence": func(_ context, in *exec.Value, _ *exec.VarArgs) (bool, error) { return in.IsIterable(), nil },
	}
	for _, name := range []string{
		"!=", "<", "<=", "==", ">", ">=", "boolean", "callable", "defined", "divisibleby", "eq", "equalto", "even",
		"float", "ge", "greaterthan", "gt", "in", "integer", "iterable", "le", "lessthan", "lower", "lt", "mapping",
		"ne", "none", "number", "odd", "sameas", "string", "undefined", "upper",
	} {
		set[name] = builtin(builtins.Tests.Get(name))
	}
	return exec.NewTestSet(set)
}

func controlStructures() *exec.ControlStructureSet {
	set := map[string]parser.ControlStructureParser{
		"for":        parseFor,
		"macro":      parseMacro,
		"set":        parseSet,
		"generation": parseGeneration,
	}
	for _, name := range []string{"if", "raw", "with", "filter", "call", "do", "break", "continue"} {
		set[name] = builtin(blocks.All.Get(name))
	}
	return exec.NewControlStructureSet(set)
}

// grouped is what prepare puts before brackets: it returns what is in them, a
// value or the values of a tuple.
func grouped(params *exec.VarArgs) *exec.Value {
	if len(params.Args) == 1 {
		return params.Args[0]
	}
	l := make(list, len(params.Args))
	for i, a := range params.Args {
		l[i] = a.Interface()
	}
	return exec.AsValue(l)
}

// rangeFunction is Python's range, as a list. gonja's fills a channel from a
// goroutine, which has no end if the range has none.
func rangeFunction(params *exec.VarArgs) (list, error) {
	start, stop, step := 0, 0, 1
	into := []*int{&stop}
	switch len(params.Args) {
	case 1:
	case 2:
		into = []*int{&start, &stop}
	case 3:
		into = []*int{&start, &stop, &step}
	default:
		return nil, fmt.Errorf("range: %d arguments, want 1 to 3", len(params.Args))
	}
	for i, a := range params.Args {
		if !a.IsInteger() {
			return nil, fmt.Errorf("range: argument %d is not an integer", i+1)
		}
		*into[i] = a.Integer()
	}
	if step == 0 {
		return nil, errors.New("range: step is 0")
	}
	l := list{}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(l) == maxRange {
			return nil, fmt.Errorf("range: more than %d elements", maxRange)
		}
		l = append(l, i)
	}
	return l, nil
}

func items(pairs []*exec.Pair) list {
	l := make(list, len(pairs))
	for i, p := range pairs {
		l[i] = list{p.Key.Interface(), p.Value.Interface()}
	}
	return l
}

func sortedByKey(pairs []*exec.Pair) []*exec.Pair {
	pairs = slices.Clone(pairs)
	slices.SortStableFunc(pairs, func(a, b *exec.Pair) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return pairs
}
