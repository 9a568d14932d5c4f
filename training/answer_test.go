package training

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"glimpse/checkpoints"
	"glimpse/eviction"
	"glimpse/kernels"
	"glimpse/lora"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestAnswers: an answer has the same number of tokens whatever the prompt's length, and what is compared of it is what was asked for: of a
// short prompt all of it, of a response as many tokens as it has.
func TestAnswers(t *testing.T) {
	m := modeltest.Llama{Vocab: 30}.Open(t, "reference64")
	for _, c := range []struct {
		label            string
		prompt, response int
		to               int
	}{{"context-mean", 20, 0, 20}, {"context-mean", 300, 0, answerTokens}, {"", 20, 7, 7}, {"", 20, 200, answerTokens}} {
		r, cache, l := runner.New(m), kvcache.New(m), mustLabel(t, c.label)
		s := Sample{ID: "a", Prompt: modeltest.Tokens(m, 1, c.prompt), Response: modeltest.Tokens(m, 2, max(1, c.response))}
		if _, err := r.Prefill(t.Context(), cache, s.Prompt, runner.PrefillOptions{CacheOnly: true}); err != nil {
			t.Fatal(err)
		}
		a, err := newAnswer(t.Context(), r, cache, s, l)
		if err != nil || a == nil {
			t.Fatalf("%+v: %v, %v", c, a, err)
		}
		if len(a.tokens) != answerTokens || a.teacher.Dim0() != answerTokens || a.from < 0 || a.from >= a.to || a.to < c.to-8 || a.to > c.to {
			t.Errorf("%+v: %d tokens, compared from %d to %d", c, len(a.tokens), a.from, a.to)
		}
	}
}

// TestOwnAnswers: where there is a chat template the model answers some prompts by itself, as it does whoever asks it, and the
// cache is as before.
func TestOwnAnswers(t *testing.T) {
	m := modeltest.OpenFolder(t, os.DirFS(modeltest.GoldenNamed(t, "llama3.1").Folder), "reference64")
	m.Config.MaxPositions = 4 * answerTokens
	m.Tokenizer.SetChatTemplate("{% for m in messages %}U:{{ m['content'] }}|{% endfor %}{% if add_generation_prompt %}A:{% endif %}", "the test")
	turn, l, own := m.UserTurn(), mustLabel(t, "context-mean"), 0
	for i := range 8 {
		r, cache := runner.New(m), kvcache.New(m)
		s := Sample{ID: string(rune('a' + i)), Prompt: slices.Concat(turn.Begins, modeltest.Tokens(m, uint64(i), 40))}
		if _, err := r.Prefill(t.Context(), cache, s.Prompt, runner.PrefillOptions{CacheOnly: true}); err != nil {
			t.Fatal(err)
		}
		before := cache.View(0)[0].K.Float64s()
		a, err := newAnswer(t.Context(), r, cache, s, l)
		if err != nil || a == nil {
			t.Fatalf("%v, %v", a, err)
		}
		if after := cache.View(0)[0].K.Float64s(); !slices.Equal(after, before) || cache.Next() != int32(len(s.Prompt)) {
			t.Errorf("the cache goes on at %d and has changed: %v", cache.Next(), !slices.Equal(after, before))
		}
		whole := kvcache.New(m)
		logits, err := r.Forward(t.Context(), whole, slices.Concat(s.Prompt, turn.Ends), runner.PrefillOptions{})
		if err != nil {
			t.Fatal(err)
		}
		said, err := r.Respond(t.Context(), whole, logits, runner.GenerateOptions{MaxNew: answerTokens - len(turn.Ends)})
		if err != nil {
			t.Fatal(err)
		}
		if want := slices.Concat(turn.Ends, said); len(said) > 0 && slices.Equal(a.tokens[:min(a.to, len(want))], want) {
			if own++; a.from != len(turn.Ends)-1 || a.to != len(want) {
				t.Errorf("compared from %d to %d, want %d to %d", a.from, a.to, len(turn.Ends)-1, len(want))
			}
		}
	}
	if own == 0 || own == 8 {
		t.Errorf("%d of 8 prompts are answered by the model, want some", own)
	}
}

// TestAnotherAdapterSelects: an answer runs on what the policy keeps of a prompt at run time by the other adapter's rows. The own rows'
// scores are neither read nor compared with anything.
func TestAnotherAdapterSelects(t *testing.T) {
	m := modeltest.Llama{Layers: 2, Heads: 4, KVHeads: 2, Seed: 6}.Open(t, "reference64")
	scorer, err := lora.New(m, model.AdapterConfig{Rows: 3, Rank: 2, Alpha: 4, Modules: model.Modules, InitToken: 2, InitNoise: 0.5, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	stored := scorer.Export()
	stored.Base.Name, stored.PoolingKernel, stored.Loss, stored.InvocationTokens = m.Name, 1, "kl", []int{1}
	if stored.Base.SHA256, err = m.SHA256(t.Context()); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "scorer")
	if err := checkpoints.WriteAdapter(folder, stored, false); err != nil {
		t.Fatal(err)
	}
	kind, err := model.RowsKinds.Lookup("restorekv")
	if err != nil {
		t.Fatal(err)
	}
	own, err := kind.New(m, model.AdapterConfig{Rows: 9, InitToken: -1, InitNoise: 1, Seed: 8})
	if err != nil {
		t.Fatal(err)
	}
	o, err := newObjective(m, own, &AdapterConfig{Kind: "restorekv", Loss: "distil", Label: "context-mean", Pooling: 3, Scorer: folder}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const n, budget = 120, 30
	s := Sample{ID: "b", Prompt: modeltest.Tokens(m, 1, n)}
	p, err := prepareSample(t.Context(), runner.New(m), s, 8, []label{o.label})
	if err != nil {
		t.Fatal(err)
	}
	p.answers[0].share = float64(budget) / n
	student, err := newStudent(m, own, o)
	if err != nil {
		t.Fatal(err)
	}
	defer student.graph.Close()
	sample := student.sampleOf(m, p, s.Prompt, 0)
	var got [][][]int32
	for l := range m.Config.Layers {
		var heads [][]int32
		for _, kv := range sample.Answer.Past(m.On(l), kernels.NewArena(m.On(l)), l, nil) {
			heads = append(heads, kv.Positions)
		}
		got = append(got, heads)
	}
	session, err := eviction.NewRuntime(m).Prefill(t.Context(), o.policy, eviction.Prompt{Tokens: s.Prompt, Budget: budget})
	if err != nil {
		t.Fatal(err)
	}
	if want := session.Kept(); !reflect.DeepEqual(got, want) {
		t.Errorf("the answer runs on %v, at run time %v is kept", got, want)
	}
	if len(got[0][0])+sample.Answer.Staying != budget {
		t.Errorf("%d entries and %d rows, want a budget of %d", len(got[0][0]), sample.Answer.Staying, budget)
	}
	loss, grads := kernels.FromF64([]float64{0}), kernels.NewTensor(kernels.F64, 4, n)
	grads.F64()[0] = 1
	o.addLayer(m.Backend, loss, grads, kernels.NewTensor(kernels.F64, 4, n), p.targets[0][0], 0, 2)
	if loss.F64()[0] != 0 || grads.F64()[0] != 0 {
		t.Errorf("the rows' scores add %v to the loss, %v to the gradient", loss.F64()[0], grads.F64()[0])
	}
}
