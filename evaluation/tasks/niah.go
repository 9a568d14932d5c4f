package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"glimpse/evaluation"
	"glimpse/evaluation/scoring"
)

func init() {
	evaluation.Tasks.Add("niah", evaluation.Task{
		Name:   "niah",
		Doc:    "needle in a haystack: one sentence at each depth of prompts of each length, exact to the token, and a question for it",
		Source: "G. Kamradt 2023, github.com/gkamradt/LLMTest_NeedleInAHaystack; needles of numbers as RULER, Hsieh et al. 2024, arXiv:2404.06654",
		Data:   "text for the haystack, a file or folder; without it a made one",
		Options: []evaluation.Option{
			{Name: "lengths", Doc: "prompt lengths in tokens; none is the one that --tokens gives, or 1024,2048,4096"},
			{Name: "depths", Default: "0,0.25,0.5,0.75,1", Doc: "where the needle stands, as shares of the haystack, or how many of them, evenly spaced"},
			{Name: "needle", Default: "number", Doc: `"number": a number that differs from prompt to prompt; "sandwich": that of the first such test; or a sentence, with question and answer`},
			{Name: "question", Doc: "that asks for a needle of your own"},
			{Name: "answer", Doc: "that must stand in the model's"},
			{Name: "scorer", Default: niahContains, Doc: niahContains + ": 1 if the model's answer has the needle's in it; rouge1: ROUGE-1, the F1 of the words of the two"},
		},
		Open: openNIAH,
	})
}

const (
	niahContains = "contains"
	niahROUGE    = "rouge1"
	niahMaxNew   = 64
	// niahSamples is how many prompts there are of each length and depth.
	niahSamples = 3
	// niahHaystack is how many words are made for a haystack.
	niahHaystack = 20000
)

// needle is a sentence that hides in a haystack, the question for it and its answer.
type needle struct{ text, question, answer string }

// numberNeedle tells a number.
func numberNeedle(about, value string) needle {
	return needle{
		fmt.Sprintf("One of the special magic numbers for %s is: %s.", about, value),
		fmt.Sprintf("What is the special magic number for %s mentioned in the provided text?", about), value,
	}
}

// sandwich is the needle of the test by G. Kamradt.
var sandwich = needle{
	"The best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a sunny day.",
	"What is the best thing to do in San Francisco?",
	"eat a sandwich and sit in Dolores Park on a sunny day",
}

// niah is the task at work.
type niah struct {
	setting *evaluation.Setting
	own     *needle // the same in all prompts; nil: numbers
	given   *haystack
	rate    scoring.Metric
	metric  string // as results are reported
}

func openNIAH(ctx context.Context, s *evaluation.Setting, _ string) (*evaluation.Samples, error) {
	lengths, err := lengthsOf(s, []int{1024, 2048, 4096})
	if err != nil {
		return nil, err
	}
	maxNew := maxNew(s, niahMaxNew)
	if err := checkLengths(s, lengths, maxNew); err != nil {
		return nil, err
	}
	depths, err := depthsOf(s.Options["depths"])
	if err != nil {
		return nil, fmt.Errorf("option depths: %w", err)
	}
	n := &niah{setting: s}
	if err := n.readOptions(); err != nil {
		return nil, err
	}
	if s.Data != "" {
		path, err := localData(ctx, s)
		if err != nil {
			return nil, err
		}
		if n.given, err = readHaystack(path, s.Fields); err != nil {
			return nil, err
		}
	}
	samples := cmp.Or(s.Samples, niahSamples)
	return &evaluation.Samples{
		Metric: n.metric, Count: len(lengths) * len(depths) * samples,
		Each: func(yield func(evaluation.Item) bool) {
			for i := range samples { // all cells of the map fill up at the same pace
				for _, length := range lengths {
					for _, depth := range depths {
						item := evaluation.Item{
							ID:   fmt.Sprintf("%d-%s-%d", length, formatDepth(depth), i),
							Make: func(ctx context.Context) (*evaluation.Sample, error) { return n.sample(ctx, length, maxNew, depth, i) },
						}
						if !yield(item) {
							return
						}
					}
				}
			}
		},
	}, nil
}

// readOptions reads the options of the needle and of its scorer.
func (n *niah) readOptions() error {
	o := n.setting.Options
	switch kind := o["needle"]; {
	case kind == "number" || kind == "sandwich":
		if o["question"] != "" || o["answer"] != "" {
			return fmt.Errorf("option question or answer with needle %q: want a needle of your own", kind)
		}
		if kind == "sandwich" {
			n.own = &sandwich
		}
	case o["question"] == "" || o["answer"] == "":
		return errors.New("option needle: a needle of your own wants question and answer, too")
	default:
		n.own = &needle{kind, o["question"], o["answer"]}
	}
	metric, ok := map[string]string{niahContains: "string_match_all", niahROUGE: niahROUGE}[o["scorer"]]
	if !ok {
		return fmt.Errorf("option scorer: got %q, want %s or %s", o["scorer"], niahContains, niahROUGE)
	}
	n.metric = o["scorer"]
	var err error
	n.rate, err = scoring.Metrics.Lookup(metric)
	return err
}

func (n *niah) sample(ctx context.Context, length, maxNew int, depth float64, i int) (*evaluation.Sample, error) {
	// The same sample has the same haystack and needle at all lengths and depths.
	rng := rand.New(rand.NewPCG(n.setting.Seed, seedOf("niah")+uint64(i)))
	var hidden needle
	if n.own != nil {
		hidden = *n.own
	} else {
		about, value := randomPair(rng), randomNumber(rng)
		hidden = numberNeedle(about, value)
	}
	hay, from := n.given, 0
	if hay == nil {
		hay = makeHaystack(rng, niahHaystack)
	} else {
		from = rng.IntN(len(hay.words))
	}
	ids, _, err := fit(ctx, n.setting, niahDraft(hidden, hay, from, depth), length)
	if err != nil {
		return nil, err
	}
	return &evaluation.Sample{
		Turns:    []evaluation.Turn{{Prompt: evaluation.Fixed(ids), MaxNew: maxNew}},
		Evidence: standingText(n.setting.Model, ids, hidden.answer), References: []string{hidden.answer},
		Groups: []evaluation.Group{{Key: "length", Value: strconv.Itoa(length)}, {Key: "depth", Value: formatDepth(depth)}},
		Score: func(_ context.Context, answers []evaluation.Output) (evaluation.Scores, error) {
			score, err := n.rate.Score(answers[0].Text, scoring.Reference{Answers: []string{hidden.answer}})
			return evaluation.Scores{n.metric: score}, err
		},
	}, nil
}

// niahDraft is a prompt; its units are words of the haystack, from one of them on.
func niahDraft(n needle, hay *haystack, from int, depth float64) draft {
	return draft{variants: len(fillerEnds), text: func(units, fillers, variant int) (user, begin string, err error) {
		list := sentences(append(hay.takeWords(from, units), filler(fillers, variant)...))
		words, at := 0, 0 // the needle stands after the last sentence that ends before its depth
		for at < len(list) && float64(words+len(strings.Fields(list[at])))/float64(max(1, units+fillers)) <= depth {
			words += len(strings.Fields(list[at]))
			at++
		}
		return "Some important information is hidden within the following text. Read it carefully; a question about it follows.\n\n" +
			strings.Join(slices.Insert(list, at, n.text), " ") + "\n\n" + n.question + " Answer with nothing but what the text says.", "", nil
	}}
}

// depthsOf reads a list of shares, or how many there are.
func depthsOf(list string) ([]float64, error) {
	if n, err := strconv.Atoi(list); err == nil && n > 1 && n <= 100 {
		out := make([]float64, n)
		for i := range out {
			out[i] = float64(i) / float64(n-1)
		}
		return out, nil
	}
	var out []float64
	for field := range strings.SplitSeq(list, ",") {
		d, err := strconv.ParseFloat(strings.TrimSpace(field), 64)
		if err != nil || !(d >= 0 && d <= 1) {
			return nil, fmt.Errorf("got %q, want shares from 0 to 1 with commas between, or a number of them from 2 to 100", field)
		}
		out = append(out, d)
	}
	return out, nil
}

// formatDepth is a depth with at most three digits.
func formatDepth(d float64) string {
	return strconv.FormatFloat(float64(int(d*1000+0.5))/1000, 'f', -1, 64)
}
