package eviction_test

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestFootprintOfEveryPolicy: what a policy's cache held at most, and what the scratch
// memory came to, is foretold exactly, without any of the numbers.
func TestFootprintOfEveryPolicy(t *testing.T) {
	const tokens, budget, maxNew = 90, 24, 70
	m := modeltest.Llama{Layers: 3, MaxPositions: 256}.Open(t, "cpu")
	hybrid := modeltest.OpenFolder(t, os.DirFS(modeltest.GoldenNamed(t, "qwen3-next").Folder), "cpu")
	shared := modeltest.OpenFolder(t, os.DirFS(modeltest.GoldenNamed(t, "gemma4-e2b").Folder), "cpu") // whose layers share caches
	of := map[string]*model.Model{}
	for _, name := range modeltest.Some(t, eviction.Policies.Names()) {
		of[name], of["hybrid/"+name], of["shared/"+name] = m, hybrid, shared
	}
	for test, m := range of {
		name := test[strings.LastIndexByte(test, '/')+1:]
		t.Run(test, func(t *testing.T) {
			counted, counter := m.Counted()
			named := policy(t, counted, name)
			weights := counter.Live()
			runtime.KeepAlive(counted)
			if weights <= 0 || weights > m.WeightBytes()+1<<16 {
				t.Errorf("weights of %d bytes, stored are %d", weights, m.WeightBytes())
			}
			f, err := eviction.NewFootprint(background, m, named, eviction.FootprintOptions{Tokens: tokens, Budget: budget, MaxNew: maxNew})
			if err != nil {
				t.Fatal(err)
			}
			rt := eviction.NewRuntime(m)
			s, err := rt.Prefill(background, policy(t, m, name), eviction.Prompt{Tokens: modeltest.Tokens(m, 1, tokens), MaxNew: maxNew, Budget: budget})
			if err != nil {
				t.Fatal(err)
			}
			// Budgets of layers and heads differ: at the same sum a layer's memory may round
			// to a few more entries.
			rounding := int64(m.Config.Layers*m.Config.KVHeads) * 16 * s.Cache.LayerPairBytes(0)
			if d := f.Cache - s.PeakBytes; d < -rounding || d > rounding && !needsResponse(name) {
				t.Errorf("a cache of %d bytes is foretold, %d were held", f.Cache, s.PeakBytes)
			}
			if got, want := f.Passes, rt.Runner.ScratchBytes(); got != want {
				t.Errorf("scratch memory of %d bytes is foretold, %d were used", got, want)
			}
			if _, _, err := s.Generate(background, runner.GenerateOptions{MaxNew: maxNew, IgnoreEnd: true}); err != nil {
				t.Fatal(err)
			}
			if held := s.Cache.Bytes(); f.Answer < held || f.Answer > held+rounding+64<<10 {
				t.Errorf("a session of %d bytes is foretold, %d are held at the end", f.Answer, held)
			}
			// The same run, counted by itself.
			peak, err := eviction.PeakOf(m, func(rt *eviction.Runtime) error {
				s, err := rt.Prefill(background, policy(t, rt.Runner.Model, name), eviction.Prompt{Tokens: make([]int32, tokens), MaxNew: maxNew, Budget: budget})
				if err == nil {
					_, _, err = s.Generate(background, runner.GenerateOptions{MaxNew: maxNew})
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if d := f.Peak - peak; d < 0 || d > 1<<20 { // the batch has an arena of its own, of one block
				t.Errorf("a peak of %d bytes is foretold, the same run counts %d", f.Peak, peak)
			}
			if f.Peak < f.Cache+f.Passes || f.Need() < f.Peak || f.Need() > 2*(f.Cache+f.Passes+f.Steps) {
				t.Errorf("footprint %+v, need %d", f, f.Need())
			}
		})
	}
}

// TestFootprintOfStudy: evaluations hold the full cache beside evicted copies, and what is foretold of that, too,
// has no numbers.
func TestFootprintOfStudy(t *testing.T) {
	const tokens, budget, maxNew = 90, 24, 3
	m := modeltest.Llama{Layers: 3, MaxPositions: 256}.Open(t, "cpu")
	for _, name := range modeltest.Some(t, eviction.Policies.Names()) {
		t.Run(name, func(t *testing.T) {
			counted, _ := m.Counted()
			o := eviction.FootprintOptions{Tokens: tokens, Budget: budget, MaxNew: maxNew, Study: true}
			f, err := eviction.NewFootprint(background, m, policy(t, counted, name), o)
			if err != nil {
				t.Fatal(err)
			}
			rt := eviction.NewRuntime(m)
			s, err := rt.Study(background, []*eviction.Configured{policy(t, m, name)}, eviction.Prompt{Tokens: modeltest.Tokens(m, 1, tokens), MaxNew: maxNew}, []int{budget}, runner.GenerateOptions{MaxNew: maxNew})
			if err != nil {
				t.Fatal(err)
			}
			if held := s.Cache.Bytes(); f.Cache < held || f.Cache > 2*held || f.Peak < f.Cache {
				t.Errorf("caches of %d bytes and %d in all are foretold, the full one held %d", f.Cache, f.Peak, held)
			}
		})
	}
}

// needsResponse tells that the policy first decodes on a cache of its own, which Session
// does not count.
func needsResponse(name string) bool { return name == "oracle" }

// TestFootprintOfAblations: what options change has a footprint, too, and no numbers.
func TestFootprintOfAblations(t *testing.T) {
	const tokens, budget, maxNew = 90, 24, 3
	m := modeltest.Llama{Layers: 4, Heads: 4, KVHeads: 2, MaxPositions: 256}.Open(t, "cpu")
	for _, set := range []string{
		"snapkv.per=query-head", "snapkv.dense=1", "d2o.merge=average", "d2o.merge=none", "d2o.feature=both", "d2o.threshold=none", "d2o.allocation=exponential",
		"dapq.offset=-9", "dapq.content=fixed", "rocketkv.split=0.5", "rocketkv.dense=2", "hsa.dense=1", "exact-topk.dense=9", "duoattention.dense=1", "streamingllm.decode=0",
		"snapkv.head-budgets=layer", "snapkv.head-budgets=global", "kvzip.head-budgets=global", "laq.head-budgets=global", "kvzip.chunk=16", "kvzip.of=mean", "kvzip+.chunk=16", "kvzip+.of=mean",
		"snapkv.refit=matching", "laq++.refit=matching", "kvzip.refit=values",
	} {
		t.Run(set, func(t *testing.T) {
			name, _, _ := strings.Cut(set, ".")
			counted, _ := m.Counted()
			f, err := eviction.NewFootprint(background, m, policy(t, counted, name, set), eviction.FootprintOptions{Tokens: tokens, Budget: budget, MaxNew: maxNew})
			if err != nil {
				t.Fatal(err)
			}
			s, err := eviction.NewRuntime(m).Prefill(background, policy(t, m, name, set), eviction.Prompt{Tokens: modeltest.Tokens(m, 1, tokens), Budget: budget})
			if err != nil {
				t.Fatal(err)
			}
			rounding := int64(m.Config.Layers*m.Config.KVHeads) * 16 * s.Cache.LayerPairBytes(0)
			if f.Cache < s.PeakBytes-rounding || f.Cache > s.PeakBytes+rounding || f.Peak < f.Cache {
				t.Errorf("a cache of %d bytes and %d in all are foretold, %d were held", f.Cache, f.Peak, s.PeakBytes)
			}
		})
	}
}

// TestFootprintOfRoundedCaches: so is that of caches in few bits, of sessions and of studies.
func TestFootprintOfRoundedCaches(t *testing.T) {
	const tokens, budget, maxNew = 90, 24, 20
	for _, cache := range []string{"fp8", "q8_0", "q4_0", "kivi4"} {
		m := openHalf(t, modeltest.Llama{Layers: 3, HeadDim: 32, MaxPositions: 256}, "cpu", cache)
		for _, name := range modeltest.Some(t, eviction.Policies.Names()) {
			t.Run(cache+"/"+name, func(t *testing.T) {
				counted, _ := m.Counted()
				named := policy(t, counted, name)
				f, err := eviction.NewFootprint(background, m, named, eviction.FootprintOptions{Tokens: tokens, Budget: budget, MaxNew: maxNew})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := eviction.NewFootprint(background, m, named, eviction.FootprintOptions{Tokens: tokens, Budget: budget, MaxNew: maxNew, Study: true}); err != nil {
					t.Fatal(err)
				}
				rt := eviction.NewRuntime(m)
				s, err := rt.Prefill(background, policy(t, m, name), eviction.Prompt{Tokens: modeltest.Tokens(m, 1, tokens), MaxNew: maxNew, Budget: budget})
				if err != nil {
					t.Fatal(err)
				}
				rounding := int64(m.Config.Layers*m.Config.KVHeads) * 16 * s.Cache.LayerPairBytes(0)
				if d := f.Cache - s.PeakBytes; d < -rounding || d > rounding && !needsResponse(name) {
					t.Errorf("a cache of %d bytes is foretold, %d were held", f.Cache, s.PeakBytes)
				}
			})
		}
	}
}

// TestFootprintOfSessions: what a session counts is its policy's footprint, and where memory for so much is there anyway, a bound
// of it that takes fewer collections of garbage, which hold up those who answer.
func TestFootprintOfSessions(t *testing.T) {
	const tokens, budget, maxNew, rows = 960, 240, 64, 4 // a length that is not rounded
	m := modeltest.Llama{Layers: 6, Heads: 4, KVHeads: 2, HeadDim: 64, MaxPositions: 2048}.Open(t, "cpu")
	for _, name := range modeltest.Some(t, eviction.Policies.Names()) {
		t.Run(name, func(t *testing.T) {
			named := policy(t, m, name)
			s, err := eviction.NewRuntime(m).NewSession(named, eviction.Pairs(budget))
			if err != nil {
				t.Fatal(err)
			}
			count := func(enough int64) (f eviction.Footprint, collections uint32) {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				f, err := s.Footprint(background, tokens, eviction.FootprintOptions{MaxNew: maxNew, Rows: rows, Enough: enough})
				if err != nil {
					t.Fatal(err)
				}
				runtime.ReadMemStats(&after)
				return f, after.NumForcedGC - before.NumForcedGC
			}
			want, err := eviction.NewFootprint(background, m, named, eviction.FootprintOptions{Tokens: tokens, Budget: budget, MaxNew: maxNew, Rows: rows})
			if err != nil {
				t.Fatal(err)
			}
			exact, all := count(0)
			if exact != want {
				t.Errorf("counted %+v, want %+v", exact, want)
			}
			bound, few := count(8 * want.Need())
			if bound.Need() < want.Peak || bound.Need() > 8*want.Need() || few > all/2 {
				t.Errorf("a bound of %d in %d collections, counted %d in %d", bound.Need(), few, want.Need(), all)
			}
			// Where less than the need is there anyway, it is counted as without.
			if closer, _ := count(want.Peak / 2); closer != want {
				t.Errorf("counted %+v, want %+v", closer, want)
			}
		})
	}
}

// TestFootprintOfLogProbs: what a prompt's own tokens are told by is counted: logits of a few rows at a time, however long the
// prompt is.
func TestFootprintOfLogProbs(t *testing.T) {
	const budget, maxNew = 24, 1
	m := modeltest.Llama{Layers: 3, Vocab: 3000, MaxPositions: 1024}.Open(t, "cpu")
	for _, tokens := range []int{90, 900} {
		var passes [2]int64
		for i, told := range []bool{false, true} {
			counted, _ := m.Counted()
			o := eviction.FootprintOptions{Tokens: tokens, Budget: budget, MaxNew: maxNew, LogProbs: told}
			f, err := eviction.NewFootprint(background, m, policy(t, counted, "snapkv"), o)
			if err != nil {
				t.Fatal(err)
			}
			rt := eviction.NewRuntime(m)
			s, err := rt.NewSession(policy(t, m, "snapkv"), eviction.Pairs(budget))
			if err != nil {
				t.Fatal(err)
			}
			n := 1
			if told {
				s.LogProbs = &runner.PromptLogProbs{Each: func(int32, float64, []runner.LogProb) { n++ }}
			}
			if err := s.Turn(background, eviction.Prompt{Tokens: modeltest.Tokens(m, 1, tokens)}); err != nil {
				t.Fatal(err)
			}
			if passes[i] = f.Passes; told && n != tokens {
				t.Errorf("told of %d tokens, want %d", n, tokens)
			}
			if used := rt.Runner.ScratchBytes(); f.Passes != used {
				t.Errorf("%d tokens, told %v: scratch memory of %d bytes is foretold, %d were used", tokens, told, f.Passes, used)
			}
		}
		if more := passes[1] - passes[0]; more < 0 || more > 20*3000*4 {
			t.Errorf("%d tokens: %d bytes more of scratch memory, want those of at most 16 rows of logits and little else", tokens, more)
		}
	}
}

// TestTrafficOfGroups: a step over a cache in groups reads the newest entries, which no group has taken yet, in their own type.
func TestTrafficOfGroups(t *testing.T) {
	const tokens, steps = 120, 40
	m := openHalf(t, modeltest.Llama{Layers: 2, HeadDim: 32, MaxPositions: 256}, "cpu", "kivi4")
	s := prefill(t, m, policy(t, m, "full"), modeltest.Tokens(m, 1, tokens), tokens)
	if _, _, err := s.Generate(background, runner.GenerateOptions{MaxNew: steps + 1, IgnoreEnd: true}); err != nil {
		t.Fatal(err)
	}
	var want int64
	for n := int64(tokens + 1); n <= tokens+steps; n++ {
		grouped := (n - 32) / 32 * 32
		head := grouped*32*5/8 + (n-grouped)*32*2 // 5 bits, 16 bits
		want += 2 * head * int64(m.Config.Layers*m.Config.KVHeads)
	}
	if s.Traffic.Steps != steps || s.Traffic.Bytes != want {
		t.Errorf("%d bytes in %d steps, want %d in %d", s.Traffic.Bytes, s.Traffic.Steps, want, steps)
	}
	if held := s.Cache.Bytes(); s.Traffic.Most > held {
		t.Errorf("a step has read %d bytes of %d", s.Traffic.Most, held)
	}
}
