package chat

import (
	"fmt"

	blocks "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// runKey is the name under which a rendering's state is among its variables. No
// template can spell it.
const runKey = "\x00run"

// runState is what one rendering has used up, and how it was ended.
type runState struct {
	passes, depth int
	raised        *RaisedError
	exceeded      error
}

func stateOf(r *exec.Renderer) *runState {
	v, _ := r.Environment.Context.Get(runKey)
	return v.(*runState) // set by render, and out of the template's reach
}

// raise is raise_exception.
func (s *runState) raise(message string) (string, error) {
	s.raised = &RaisedError{message}
	return "", s.raised
}

func (s *runState) exceed(format string, args ...any) error {
	s.exceeded = fmt.Errorf(format, args...)
	return s.exceeded
}

// hook is a block that runs Go code and prints nothing. Hooks are put into the
// bodies of loops and macros to count.
type hook struct {
	at  *tokens.Token
	run func(r *exec.Renderer) error
}

func (h *hook) Position() *tokens.Token { return h.at }
func (h *hook) String() string          { return "limit" }

// Execute implements exec.ControlStructure.
func (h *hook) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error { return h.run(r) }

func (h *hook) node() nodes.Node {
	return &nodes.ControlStructureBlock{Location: h.at, Name: h.String(), ControlStructure: h}
}

func countPass(r *exec.Renderer) error {
	s := stateOf(r)
	if s.passes++; s.passes > maxPasses {
		return s.exceed("more than %d passes of loops and macros", maxPasses)
	}
	return nil
}

func enter(r *exec.Renderer) error {
	s := stateOf(r)
	if s.depth++; s.depth > maxDepth {
		return s.exceed("macros call each other more than %d deep", maxDepth)
	}
	return countPass(r)
}

func leave(r *exec.Renderer) error {
	stateOf(r).depth--
	return nil
}

// parseFor is gonja's for, counted. Recursive loops are refused: no chat
// template has one, and their depth could not be limited.
func parseFor(p, args *parser.Parser) (nodes.ControlStructure, error) {
	at := args.Current()
	s, err := builtin(blocks.All.Get("for"))(p, args)
	if err != nil {
		return nil, err
	}
	loop := s.(*blocks.ForControlStructure)
	if loop.Recursive {
		return nil, args.Error("recursive loops are not supported", at)
	}
	count := &hook{at, countPass}
	loop.BodyWrapper.Nodes = append([]nodes.Node{count.node()}, loop.BodyWrapper.Nodes...)
	return loop, nil
}

// parseMacro is gonja's macro, counted and limited in depth.
func parseMacro(p, args *parser.Parser) (nodes.ControlStructure, error) {
	at := args.Current()
	s, err := builtin(blocks.All.Get("macro"))(p, args)
	if err != nil {
		return nil, err
	}
	body := s.(*blocks.MacroControlStructure).Wrapper
	first, last := &hook{at, enter}, &hook{at, leave}
	body.Nodes = append(append([]nodes.Node{first.node()}, body.Nodes...), last.node())
	return s, nil
}

// limitedSet is gonja's set, with a limit on the size of the variable it sets,
// which would otherwise double with every {% set x = x ~ x %}.
type limitedSet struct {
	*blocks.SetControlStructure
	name string
}

func parseSet(p, args *parser.Parser) (nodes.ControlStructure, error) {
	name := args.Current(tokens.Name)
	s, err := builtin(blocks.All.Get("set"))(p, args)
	if err != nil {
		return nil, err
	}
	if name == nil {
		return s, nil
	}
	return &limitedSet{s.(*blocks.SetControlStructure), name.Val}, nil
}

// Execute implements exec.ControlStructure.
func (s *limitedSet) Execute(r *exec.Renderer, block *nodes.ControlStructureBlock) error {
	if err := s.SetControlStructure.Execute(r, block); err != nil {
		return err
	}
	v, _ := r.Environment.Context.Get(s.name)
	if size := sizeOf(exec.ToValue(v), maxVariable, 0); size > maxVariable {
		return stateOf(r).exceed("variable %s holds more than %d MB", s.name, maxVariable>>20)
	}
	return nil
}

// sizeOf estimates the bytes of a value; it stops counting past limit.
func sizeOf(v *exec.Value, limit, depth int) int {
	const item = 32 // bytes of a list's element or a dict's entry, at least
	if inner, ok := v.Interface().(*exec.Value); ok {
		v = inner
	}
	switch {
	case v.IsNil() || depth > maxDepth:
		return 0
	case v.IsString():
		return len(v.String())
	case v.IsList():
		size := v.Len() * item
		for i := 0; i < v.Len() && size <= limit; i++ {
			size += sizeOf(v.Index(i), limit-size, depth+1)
		}
		return size
	}
	pairs, _ := members(v)
	size := len(pairs) * item
	for _, p := range pairs {
		if size > limit {
			break
		}
		size += sizeOf(p.Key, limit-size, depth+1) + sizeOf(p.Value, limit-size, depth+1)
	}
	return size
}

// generationBlock is {% generation %}, with which templates mark the
// assistant's text for training; it prints its body.
type generationBlock struct {
	at   *tokens.Token
	body *nodes.Wrapper
}

func parseGeneration(p, args *parser.Parser) (nodes.ControlStructure, error) {
	b := &generationBlock{at: p.Current()}
	if !args.End() {
		return nil, args.Error("generation takes no arguments", args.Current())
	}
	var err error
	b.body, _, err = p.WrapUntil("endgeneration")
	return b, err
}

func (b *generationBlock) Position() *tokens.Token { return b.at }
func (b *generationBlock) String() string          { return "generation" }

// Execute implements exec.ControlStructure.
func (b *generationBlock) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	return r.ExecuteIfWrapper(b.body)
}
