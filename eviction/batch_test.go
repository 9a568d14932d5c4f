package eviction_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"glimpse/datasets"
	"glimpse/eviction"
	"glimpse/internal/compare"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// batchDevices are those whose batches are compared with sessions alone.
var batchDevices = []string{"cpu"}

// batchCase is a session that takes part in a batch, and its settings.
type batchCase struct {
	name         string
	policy, kind string
	session      func(t testing.TB) *eviction.Session
	forced       []int32 // or nil
	opt          runner.GenerateOptions
}

// answered is what an answer leaves.
type answered struct {
	answer   *runner.Sequence
	session  *eviction.Session
	logProbs []float64
}

// join lets the session of a case join a batch.
func (c batchCase) join(t testing.TB, b *runner.Batch) *answered {
	t.Helper()
	a := &answered{session: c.session(t)}
	opt := c.opt
	opt.OnLogProb = func(_ int32, p float64, _ []runner.LogProb) { a.logProbs = append(a.logProbs, p) }
	var err error
	if c.forced != nil {
		opt = runner.GenerateOptions{Forced: c.forced}
	}
	if a.answer, err = a.session.Join(b, opt); err != nil {
		t.Fatal(c.name, err)
	}
	return a
}

// result checks that an answer has ended without an error.
func (a *answered) result(t testing.TB, name string) *answered {
	t.Helper()
	if err := a.answer.Err(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if p := a.answer.LogProbs(); p != nil {
		a.logProbs = p
	}
	return a
}

func newBatch(t testing.TB, m *model.Model, rows int) *runner.Batch {
	t.Helper()
	b, err := runner.New(m).NewBatch(rows)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// variants are policies with other than their default options, and compositions.
var variants = [][]string{
	{"h2o", "h2o.kernel=5"}, {"snapkv", "snapkv.window=5"}, {"quest", "quest.page=4", "quest.dense=1"}, {"snapkv:quest"}, {"pyramidkv:sparq"}, {"adakv:hsa"},
}

// batchCases are sessions of every registered policy, with prompts, budgets and settings of
// their own.
func batchCases(t testing.TB, m *model.Model, rng *rand.Rand) (cases []batchCase) {
	all := slices.Clone(variants)
	for _, name := range eviction.Policies.Names() {
		all = append(all, []string{name})
	}
	for i, v := range all {
		p := policy(t, m, v[0], v[1:]...)
		n := 20 + rng.IntN(50)
		budget, length := 6+rng.IntN(20), 1+rng.IntN(16)
		c := batchCase{name: fmt.Sprint(i, " ", v), policy: p.Name, kind: p.Policy.Kind, opt: runner.GenerateOptions{MaxNew: length, IgnoreEnd: true}}
		c.session = func(t testing.TB) *eviction.Session {
			return prefill(t, m, p, modeltest.Tokens(m, uint64(i), n), budget)
		}
		switch i % 4 {
		case 1:
			c.opt.Sampling = model.Sampling{Temperature: 1, TopP: 0.9, Seed: uint64(i)}
		case 2:
			c.forced = modeltest.Tokens(m, uint64(100+i), length)
		case 3:
			c.opt.Sampling.Processors.RepetitionPenalty = 1.5
		}
		cases = append(cases, c)
	}
	return cases
}

// TestBatchedSessionsAnswerAsAlone: sessions of every policy, with settings of their own, join
// and leave a batch at random. Answers, log-probabilities, traffic, caches and what the next
// turn sees are those of a batch of as many rows with the session alone, to the bit.
func TestBatchedSessionsAnswerAsAlone(t *testing.T) {
	for _, device := range batchDevices {
		t.Run(device, func(t *testing.T) { batchedSessionsAnswerAsAlone(t, device) })
	}
}

func batchedSessionsAnswerAsAlone(t *testing.T, device string) {
	const rows = 5
	m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2, Seed: 2}.Open(t, device)
	rng := rand.New(rand.NewPCG(4, 4))
	cases := batchCases(t, m, rng)
	if device != "cpu" { // every launch takes its time: what is left to do while decoding, and one more
		cases = slices.DeleteFunc(cases, func(c batchCase) bool { return c.kind == "prefill" && c.policy != "snapkv" })
	}
	rng.Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
	b := newBatch(t, m, rows)
	together := make([]*answered, len(cases))
	var removed *answered // in the middle of its answer
	for at := 0; at < len(cases) || b.Len() > 0; {
		for at < len(cases) && b.Room() > 0 && (b.Len() == 0 || rng.IntN(3) > 0) {
			together[at] = cases[at].join(t, b)
			at++
		}
		if removed == nil && at > len(cases)/2 && b.Room() > 0 {
			again := cases[at-1]
			again.opt.MaxNew, again.forced = 30, nil
			removed = again.join(t, b)
		}
		if _, err := b.Step(background); err != nil {
			t.Fatal(err)
		}
		if removed != nil && len(removed.answer.Tokens()) == 3 {
			b.Remove(removed.answer)
		}
	}
	if removed == nil || len(removed.answer.Tokens()) != 3 || removed.answer.Err() != nil || removed.session.Turn(background, eviction.Prompt{Tokens: []int32{3}}) != nil {
		t.Error("no answer was removed in its middle, or its session is not ready for another turn")
	}
	for i, c := range cases {
		got := together[i].result(t, c.name)
		want := c.join(t, b)
		if err := b.Run(background); err != nil {
			t.Fatal(err)
		}
		want.result(t, c.name)
		if !slices.Equal(got.answer.Tokens(), want.answer.Tokens()) || !slices.Equal(got.logProbs, want.logProbs) || len(got.logProbs) != len(got.answer.Tokens()) {
			t.Errorf("%s: %v beside others, %v alone; log-probabilities %v and %v", c.name, got.answer.Tokens(), want.answer.Tokens(), got.logProbs, want.logProbs)
		}
		if !samePairs(got.session.Cache, want.session.Cache) || got.session.Traffic != want.session.Traffic {
			t.Errorf("%s: other pairs, or traffic %+v beside others, %+v alone", c.name, got.session.Traffic, want.session.Traffic)
		}
		next, response := modeltest.Tokens(m, 5, 9), modeltest.Tokens(m, 6, 8)
		if err := errors.Join(got.session.Turn(background, eviction.Prompt{Tokens: next, Response: response}), want.session.Turn(background, eviction.Prompt{Tokens: next, Response: response})); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.session.Logits(), want.session.Logits()) || !sameKept(got.session.Kept(), want.session.Kept()) {
			t.Errorf("%s: the next turn sees something else", c.name)
		}
	}
}

// TestBatchedSessionsAnswerAsGenerate: in exact arithmetic a batch answers what sessions do
// by themselves, and leaves them alike.
func TestBatchedSessionsAnswerAsGenerate(t *testing.T) {
	m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2, Seed: 2}.Open(t, "reference64")
	cases := batchCases(t, m, rand.New(rand.NewPCG(5, 5)))
	b := newBatch(t, m, len(cases))
	var together []*answered
	for _, c := range cases {
		together = append(together, c.join(t, b))
	}
	if err := b.Run(background); err != nil {
		t.Fatal(err)
	}
	for i, c := range cases {
		got, s := together[i].result(t, c.name), c.session(t)
		var tokens []int32
		var logProbs []float64
		var err error
		if c.forced != nil {
			logProbs, err = s.Force(background, c.forced)
			tokens = c.forced
		} else {
			opt := c.opt
			opt.OnLogProb = func(_ int32, p float64, _ []runner.LogProb) { logProbs = append(logProbs, p) }
			tokens, _, err = s.Generate(background, opt)
		}
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.answer.Tokens(), tokens) || got.session.Traffic != s.Traffic || got.session.Bytes() != s.Bytes() {
			t.Errorf("%s: %v, %+v, %d bytes; alone %v, %+v, %d", c.name, got.answer.Tokens(), got.session.Traffic, got.session.Bytes(), tokens, s.Traffic, s.Bytes())
		}
		compare.Close(t, c.name+": log-probabilities", got.logProbs, logProbs, 1e-9)
		for l := range m.Config.Layers {
			for h := range m.Config.KVHeads {
				if !slices.Equal(got.session.Cache.Positions(l, h), s.Cache.Positions(l, h)) {
					t.Errorf("%s: layer %d head %d: positions %v, alone %v", c.name, l, h, got.session.Cache.Positions(l, h), s.Cache.Positions(l, h))
				}
			}
		}
		if err := errors.Join(got.session.Turn(background, eviction.Prompt{Tokens: []int32{4, 5}, Response: tokens}), s.Turn(background, eviction.Prompt{Tokens: []int32{4, 5}, Response: tokens})); err != nil {
			t.Fatal(err)
		}
		compare.Close(t, c.name+": the next turn", got.session.Logits(), s.Logits(), 1e-9)
	}
}

// TestBatchOfAStudy: greedy answers of all policies to one prompt of the built-in model, in a
// batch, are those of Session.Generate.
func TestBatchOfAStudy(t *testing.T) {
	m, err := model.Open("", model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	stream, err := datasets.NewStream([]string{"section"}, datasets.Validation, 160, 1)
	if err != nil {
		t.Fatal(err)
	}
	sample, err := stream.At(0)
	if err != nil {
		t.Fatal(err)
	}
	var policies []*eviction.Configured
	for _, name := range eviction.Policies.Names() {
		policies = append(policies, policy(t, m, name))
	}
	rt := eviction.NewRuntime(m)
	study, err := rt.Study(background, policies, eviction.Prompt{Tokens: sample.Prompt, MaxNew: 12}, []int{48}, runner.GenerateOptions{MaxNew: 12})
	if err != nil {
		t.Fatal(err)
	}
	b, err := runner.New(m).NewBatch(8)
	if err != nil {
		t.Fatal(err)
	}
	session := func(p *eviction.Choice) *eviction.Session {
		s, err := study.Session(p)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	opt := runner.GenerateOptions{MaxNew: 12}
	var answers []*runner.Sequence
	for at := 0; at < len(study.Choices) || b.Len() > 0; {
		for ; at < len(study.Choices) && b.Room() > 0; at++ {
			a, err := session(study.Choices[at]).Join(b, opt)
			if err != nil {
				t.Fatal(err)
			}
			answers = append(answers, a)
		}
		if _, err := b.Step(background); err != nil {
			t.Fatal(err)
		}
	}
	distinct := make(map[string]bool)
	for i, plan := range study.Choices {
		want, ended, err := session(plan).Generate(background, opt)
		if err != nil {
			t.Fatal(err)
		}
		if a := answers[i]; a.Err() != nil || !slices.Equal(a.Tokens(), want) || a.Ended() != ended {
			t.Errorf("%s: %v, ended %v, %v; alone %v, %v", plan.Configured.Name, a.Tokens(), a.Ended(), a.Err(), want, ended)
		}
		distinct[fmt.Sprint(want)] = true
	}
	if len(distinct) < 2 {
		t.Error("all policies answer the same: the test would not notice whose cache an answer came from")
	}
}

// TestBatchRefusesSessions: of another model, or answered already; what is refused changes
// nothing.
func TestBatchRefusesSessions(t *testing.T) {
	m, other := modeltest.Llama{Seed: 2}.Open(t, "cpu"), modeltest.Llama{Seed: 2}.Open(t, "cpu")
	b := newBatch(t, m, 2)
	opt := runner.GenerateOptions{MaxNew: 3, IgnoreEnd: true}
	if _, err := prefill(t, other, policy(t, other, "h2o"), []int32{1, 2, 3}, 2).Join(b, opt); err == nil || !strings.Contains(err.Error(), "same model") {
		t.Errorf("another model: %v", err)
	}
	s := prefill(t, m, policy(t, m, "h2o"), []int32{1, 2, 3}, 2)
	if _, err := s.Join(b, runner.GenerateOptions{Forced: []int32{1, 40}}); err == nil {
		t.Error("a foreign id is accepted")
	}
	a, err := s.Join(b, opt)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Join(b, opt); err == nil {
		t.Error("a session joins twice")
	}
	if _, _, err := s.Generate(background, opt); err == nil {
		t.Error("a session in a batch decodes by itself")
	}
	if err := b.Run(background); err != nil || len(a.Tokens()) != 3 || a.Err() != nil {
		t.Error(a.Tokens(), a.Err(), err)
	}
	if _, err := runner.New(m).NewBatch(0); err == nil {
		t.Error("a batch of no rows")
	}
}
