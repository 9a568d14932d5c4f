package engine_test

import (
	"context"
	"fmt"
	"log"

	"glimpse/datasets"
	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/runner"
)

// Three prompts of the built-in model are answered, two at a time, with 64 of their pairs each.
func ExampleEngine() {
	ctx := context.Background()
	m, err := model.Open("", model.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	policy, err := eviction.New("snapkv", 0, nil, nil)
	if err != nil {
		log.Fatal(err)
	}
	prompts, err := datasets.NewStream([]string{"section"}, datasets.Validation, 160, 1)
	if err != nil {
		log.Fatal(err)
	}

	const rows, requests = 2, 3
	rt := eviction.NewRuntime(m)
	e, err := engine.New(rt, rows)
	if err != nil {
		log.Fatal(err)
	}
	tokens := make(map[*engine.Answer]int) // of the prompts
	for next := 0; ; {
		for ; e.Len() < rows && next < requests; next++ {
			sample, err := prompts.At(next)
			if err != nil {
				log.Fatal(err)
			}
			s, err := rt.NewSession(policy, eviction.Pairs(64))
			if err != nil {
				log.Fatal(err)
			}
			a, err := e.Submit(engine.Request{Session: s, Prompt: sample.Prompt, Generate: runner.GenerateOptions{MaxNew: 16}})
			if err != nil {
				log.Fatal(err)
			}
			tokens[a] = len(sample.Prompt)
		}
		if e.Len() == 0 {
			break
		}
		events, err := e.Step(ctx)
		if err != nil {
			log.Fatal(err)
		}
		for _, event := range events {
			if a := event.Answer; event.Done {
				fmt.Printf("%d tokens are answered: %q, %v\n", tokens[a], a.Text(), a.Reason())
			}
		}
	}
	// Output:
	// 160 tokens are answered: "hammer market gate", end
	// 160 tokens are answered: "theater railway nail valley", end
	// 160 tokens are answered: "pillow boot penny", end
}
