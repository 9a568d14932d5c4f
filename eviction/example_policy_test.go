package eviction_test

import (
	"context"
	"fmt"

	"glimpse/eviction"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// hitters is a whole policy: the prompt is scored by the attention of its last rows, summed
// over them, and every decoding step adds its own and evicts what has got least, but for the
// first entries and the last. A package that registers it calls
//
//	eviction.Policies.Add("hitters", eviction.Policy{Kind: "prefill + decode", New: ...})
//
// in its init. All operations are the backend's, so that it runs on a device as it is.
type hitters struct{ window, sink int }

func (m hitters) Plan(p eviction.Prompt) eviction.Plan {
	sink, recent := min(m.sink, p.Budget/4), p.Budget/4
	return eviction.Plan{
		Capture: runner.Capture{Windows: []int{m.window}}, Sink: sink, Recent: recent,
		Score: func(s *eviction.Scores, o *runner.Observation) {
			rows := min(m.window, len(p.Tokens))
			s.Observe(kernels.ScoreTerm{LogScore: o.Windows[0], Group: kernels.GroupMean, Factor: float32(rows)})
		},
		Decode: func(s *eviction.Session) *eviction.Decoding {
			sums := eviction.NewAccumulated(s)
			d := sums.Decoding() // observes the steps, and goes on with the sums in the next turn
			d.Step = func(o *runner.Observation) (*kernels.Selection, error) {
				now := sums.Add(o)
				if now.Most() <= p.Budget {
					return nil, nil
				}
				keep := now.Select(now.Uniform(p.Budget), sink, recent)
				sums.Retain(o.Layer, keep)
				return keep, nil
			}
			return d
		},
	}
}

// A policy of another package, on every backend that there is.
func Example() {
	folder, err := modeltest.Llama{Layers: 2, Heads: 4, KVHeads: 2, Seed: 5}.Folder()
	if err != nil {
		fmt.Println(err)
		return
	}
	policy := &eviction.Configured{Name: "hitters", Method: hitters{window: 8, sink: 2}}
	same := make(map[string]bool)
	for _, device := range kernels.Backends.Names() {
		m, err := model.OpenFS(folder, "example", model.Options{Device: device})
		if err != nil {
			fmt.Println(err)
			return
		}
		tokens := make([]int32, 60)
		for i := range tokens {
			tokens[i] = int32(i*i) % int32(m.Config.Vocab)
		}
		session, err := eviction.NewRuntime(m).Prefill(context.Background(), policy, eviction.Prompt{Tokens: tokens, Budget: 16})
		if err != nil {
			fmt.Println(err)
			return
		}
		if _, _, err := session.Generate(context.Background(), runner.GenerateOptions{MaxNew: 8, IgnoreEnd: true}); err != nil {
			fmt.Println(err)
			return
		}
		same[fmt.Sprint(session.Kept(), session.Cache.Positions(0, 0))] = true
		if device == "cpu" {
			fmt.Println("kept of 60:", session.Kept()[0][0])
			fmt.Println("entries after 8 tokens:", session.Cache.Entries(1, 1))
		}
	}
	fmt.Println("backends that keep something else:", len(same)-1)
	// Output:
	// kept of 60: [0 1 5 8 11 12 25 32 45 48 49 52 56 57 58 59]
	// entries after 8 tokens: 16
	// backends that keep something else: 0
}
