package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"glimpse/eviction"
	"glimpse/internal/listing"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestInteraction plays the files of testdata: commands to an engine, and what came of them. A change that is meant rewrites them:
//
//	go test ./engine -run Interaction -rewrite
//
// The model is random, in float64, of 3 layers and a context of 128 tokens. Prompts are random tokens by their length and seed.
//
//	engine rows=N units=N budget=N  begins anew; budget is in needs of a request of 40 tokens under full with an answer of 4
//	submit NAME policy=P pairs=N prompt=N max=N [seed=N] [forced=(ids)] [stop=(ids)] [owner=O]
//	    [after=NAME: the session goes on] [with=NAME: the conversation is given whole to a session that begins]
//	    [document=SEED marked=N: N tokens of that seed come before the prompt, as a context] [salt=S: whose it is]
//	step [n=N] [stopped]            steps, and the events of each; stopped: under a context that has ended
//	run                             steps until all requests are done
//	cancel NAME, keep NAME, let-go bytes=N, close
//	state                           who waits, runs, is decoded and kept
func TestInteraction(t *testing.T) {
	m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2, MaxPositions: 128, Seed: 2}.Open(t, "reference64")
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		p := &player{t: t, m: m, policies: make(map[string]*eviction.Configured)}
		datadriven.RunTest(t, path, p.play)
	})
}

// player is an engine that is told what to do.
type player struct {
	t       *testing.T
	m       *model.Model
	engine  *Engine
	answers []*named

	policies map[string]*eviction.Configured
	context  context.Context // of the steps
}

// named is an answer with what the file calls it.
type named struct {
	*Answer
	name  string
	told  bool    // it has begun
	whole []int32 // the conversation up to its prompt's end
}

func (p *player) play(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	var out strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	number := func(key string, otherwise int) int {
		if d.HasArg(key) {
			d.ScanArgs(t, key, &otherwise)
		}
		return otherwise
	}
	text := func(key string) (value string) {
		if d.HasArg(key) {
			d.ScanArgs(t, key, &value)
		}
		return value
	}
	named := func() *named { return p.find(d, d.CmdArgs[0].Key) }
	switch d.Cmd {
	case "engine":
		var err error
		if p.engine, err = New(eviction.NewRuntime(p.m), number("rows", 1)); err != nil {
			d.Fatalf(t, "%v", err)
		}
		p.answers = nil
		p.engine.More = upTo(number("units", 0))
		p.engine.Budget = int64(number("budget", 0)) * p.need(number("rows", 1))
	case "submit":
		if err := p.submit(d, number, text); err != nil {
			say("%s", refusal(err))
		}
	case "step":
		p.context = context.Background()
		if d.HasArg("stopped") {
			stopped, stop := context.WithCancel(p.context)
			stop()
			p.context = stopped
		}
		out.WriteString(p.steps(func(step int) bool { return step < number("n", 1) }))
	case "run":
		p.context = context.Background()
		out.WriteString(p.steps(func(int) bool { return p.engine.Len() > 0 }))
	case "cancel":
		if err := p.engine.Cancel(named().Answer); err != nil {
			say("%v", err)
		}
		say("%s", named().ended())
	case "keep":
		p.engine.Keep(named().Answer)
	case "let-go":
		p.engine.LetGo(int64(number("bytes", 0)))
	case "close":
		p.engine.Close()
	case "state":
	default:
		d.Fatalf(t, "no such command: %s", d.Cmd)
	}
	if d.Cmd != "step" && d.Cmd != "run" && p.engine != nil {
		say("%s", p.state())
	}
	return out.String()
}

// need is what the budgets of the files are multiples of.
func (p *player) need(rows int) int64 {
	return footprint(p.t, eviction.NewRuntime(p.m), asked{policy: p.policy("full"), budget: 40, prompts: [][]int32{make([]int32, 40)}, opt: runner.GenerateOptions{MaxNew: 4}}, rows).Need()
}

func (p *player) find(d *datadriven.TestData, name string) *named {
	i := slices.IndexFunc(p.answers, func(a *named) bool { return a.name == name })
	if i < 0 {
		d.Fatalf(p.t, "no request is called %s", name)
	}
	return p.answers[i]
}

func (p *player) submit(d *datadriven.TestData, number func(key string, otherwise int) int, text func(key string) string) error {
	a := &named{name: d.CmdArgs[0].Key}
	r := Request{
		Context:  number("marked", 0),
		Owner:    text("owner"),
		Prompt:   modeltest.Tokens(p.m, uint64(number("seed", len(p.answers))), number("prompt", 0)),
		Generate: runner.GenerateOptions{MaxNew: number("max", 4)},
	}
	for _, arg := range d.CmdArgs {
		for _, v := range arg.Vals {
			var id int32
			if arg.Key == "forced" || arg.Key == "stop" {
				if _, err := fmt.Sscan(v, &id); err != nil {
					return err
				}
			}
			switch arg.Key {
			case "forced":
				r.Generate.Forced = append(r.Generate.Forced, id)
			case "stop":
				r.Generate.Stop = append(r.Generate.Stop, id)
			}
		}
	}
	switch after, with := text("after"), text("with"); {
	case after != "":
		r.Session = p.find(d, after).Request.Session
	case text("policy") != "":
		var err error
		if r.Session, err = p.engine.runtime.NewSession(p.policy(text("policy")), eviction.Pairs(number("pairs", 128))); err != nil {
			return err
		}
		if with != "" {
			before := p.find(d, with)
			r.Prompt = slices.Concat(before.whole, before.Tokens(), r.Prompt)
		}
	}
	if seed := number("document", -1); seed >= 0 { // that others begin with, too
		r.Prompt = slices.Concat(modeltest.Tokens(p.m, uint64(seed), r.Context), r.Prompt)
	}
	if r.Session != nil && r.Context > 0 {
		r.Session.CacheSalt = text("salt")
	}
	if number("token", -1) >= 0 { // a foreign one
		r.Prompt[0] = int32(number("token", 0))
	}
	a.whole = r.Prompt
	var err error
	if a.Answer, err = p.engine.Submit(r); err == nil {
		p.answers = append(p.answers, a)
	}
	return err
}

// policy is one and the same for all requests that name it.
func (p *player) policy(name string) *eviction.Configured {
	if _, known := p.policies[name]; !known {
		if p.policies[name] = faulty(name); p.policies[name] == nil {
			p.policies[name] = policies(p.t, name)[0]
		}
	}
	return p.policies[name]
}

// refusal is an error without bytes, which are another machine's.
func refusal(err error) string {
	if errors.Is(err, model.ErrMemory) {
		return model.ErrMemory.Error()
	}
	return err.Error()
}

// steps are the events of steps, a line each, or of several in which nothing is said.
func (p *player) steps(more func(step int) bool) string {
	var out strings.Builder
	silent := 0
	told := func() {
		if silent > 0 {
			fmt.Fprintf(&out, "(quiet steps: %d)\n", silent)
		}
		silent = 0
	}
	for step := 0; more(step); step++ {
		said := p.step()
		if said == "" {
			silent++
			continue
		}
		told()
		fmt.Fprintln(&out, said)
	}
	told()
	return out.String()
}

// step is the events of one step.
func (p *player) step() string {
	events, err := p.engine.Step(p.context)
	var said []string
	for _, e := range events {
		a := p.answers[slices.IndexFunc(p.answers, func(a *named) bool { return a.Answer == e.Answer })]
		switch {
		case e.Done:
			said = append(said, a.ended())
		case !a.told:
			a.told = true
			said = append(said, a.begins())
		default:
			said = append(said, fmt.Sprintf("%s: %v", a.name, a.Tokens()))
		}
	}
	if err != nil {
		said = append(said, err.Error())
	}
	return strings.Join(said, "; ")
}

func (a *named) begins() string {
	if n := a.Standing(); n > 0 {
		return fmt.Sprintf("%s begins, %d of its tokens stood, budget %v", a.name, n, a.Request.Session.Budget)
	}
	return a.name + " begins"
}

func (a *named) ended() string {
	text := fmt.Sprintf("%s is done: %v, %s", a.name, a.Tokens(), a.Reason())
	if p := a.LogProbs(); len(p) > 0 {
		text += fmt.Sprintf(", log-probabilities %.3f", p)
	}
	switch err := a.Err(); {
	case errors.Is(err, context.Canceled):
		text += " (cancelled)"
	case err != nil:
		text += fmt.Sprintf(" (%v)", err)
	}
	return text
}

// state is who waits, runs and is decoded, and how many sessions are kept.
func (p *player) state() string {
	e := p.engine
	group := func(what string, all ...*Answer) string {
		var names []string
		for _, a := range p.answers {
			if slices.Contains(all, a.Answer) {
				names = append(names, a.name)
			}
		}
		if names == nil {
			return ""
		}
		return fmt.Sprintf("%s %s; ", what, strings.Join(names, " "))
	}
	text := group("waiting", e.waiting...) + group("prompt", e.filling) + group("decoded", e.live...)
	kept := e.Kept()
	if kept.Sessions > 0 || kept.LetGo > 0 {
		text += fmt.Sprintf("%d kept, %d let go; ", kept.Sessions, kept.LetGo)
	}
	if kept.Contexts > 0 {
		text += fmt.Sprintf("%s kept; ", listing.Count(kept.Contexts, "context"))
	}
	if text == "" {
		return "idle"
	}
	return strings.TrimSuffix(text, "; ")
}

// faultyPolicy panics in its plan, in its scores or in its steps; nil for other names.
type faultyPolicy struct{ where string }

func faulty(name string) *eviction.Configured {
	where, ok := strings.CutPrefix(name, "panics-in-")
	if !ok {
		return nil
	}
	return &eviction.Configured{Name: name, Method: faultyPolicy{where}}
}

func (f faultyPolicy) at(where string) {
	if f.where == where {
		panic("a fault in the " + where)
	}
}

func (f faultyPolicy) Plan(eviction.Prompt) eviction.Plan {
	f.at("plan")
	return eviction.Plan{
		Score: func(s *eviction.Scores, _ *runner.Observation) {
			f.at("prompt")
			s.FromHost(func([][]float32) {})
		},
		Decode: func(*eviction.Session) *eviction.Decoding {
			return &eviction.Decoding{Step: func(*runner.Observation) (*kernels.Selection, error) {
				f.at("step")
				return nil, nil
			}}
		},
	}
}
