// Servebench puts load on a server of OpenAI's API and prints a JSON line of what came of it:
//
//	go -C lab run ./bench/servebench --base-url http://127.0.0.1:8080/v1 --text README.md --clients 32 --requests 96
//
// Every request is a passage of the text with a question behind it, streamed. Answers with 429 are asked again.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

type load struct {
	model     string
	text      []byte
	lengths   []int
	maxTokens int
	repeat    bool // all requests are about the passage of the first
	own       bool // each client asks about one passage, which no other asks about
	mark      bool // the passage ends a context
	logProbs  bool // tell of tokens that have no text
	client    openai.Client
	options   []option.RequestOption
}

// outcome is one request's.
type outcome struct {
	err                error
	refusals           int
	ttft, total        time.Duration
	gaps               []time.Duration
	prompt, out, found int
	kept, full         int64
}

func main() {
	var l load
	var url, key, files, lengths string
	var ignoreEnd bool
	var clients, requests int
	var seed uint64
	var within time.Duration
	flag.StringVar(&url, "base-url", "http://127.0.0.1:8080/v1", "of the server")
	flag.StringVar(&key, "key", "", "API key")
	flag.StringVar(&l.model, "model", "", "model, as NAME@POLICY:BUDGET")
	flag.StringVar(&files, "text", "README.md", "files of the text, with commas between")
	flag.StringVar(&lengths, "characters", "4000", "lengths of passages, with commas between, taken in turn; 0: the question alone")
	flag.IntVar(&clients, "clients", 8, "that ask at the same time")
	flag.IntVar(&requests, "requests", 32, "in all")
	flag.DurationVar(&within, "for", 0, "ask for so long in the place of --requests")
	flag.IntVar(&l.maxTokens, "max-tokens", 64, "of an answer")
	flag.BoolVar(&l.repeat, "same", false, "ask different questions about the same passage")
	flag.BoolVar(&l.own, "own", false, "each client asks different questions about a passage of its own")
	flag.BoolVar(&l.mark, "mark", false, "the passage is a part with cache_control, which is compressed before the question is known")
	flag.BoolVar(&ignoreEnd, "ignore-eos", true, "answers have all --max-tokens")
	flag.BoolVar(&l.logProbs, "logprobs", false, "ask for the tokens, so that times are between tokens; else between pieces of text, which not every token has")
	flag.Uint64Var(&seed, "seed", 1, "of the passages")
	flag.Parse()
	if err := l.read(files, lengths); err != nil {
		fmt.Fprintln(os.Stderr, "servebench:", err)
		os.Exit(1)
	}
	l.client = openai.NewClient(option.WithBaseURL(url), option.WithAPIKey(key), option.WithMaxRetries(0),
		option.WithHTTPClient(&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}))
	if key == "" {
		l.options = append(l.options, option.WithHeaderDel("Authorization"))
	}
	if l.model == "" {
		l.options = append(l.options, option.WithJSONDel("model"))
	}
	if ignoreEnd {
		l.options = append(l.options, option.WithJSONSet("ignore_eos", true))
	}
	var mu sync.Mutex
	var all []outcome
	next, start := 0, time.Now()
	take := func() (i int, more bool) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next - 1, within > 0 && time.Since(start) < within || within == 0 && next <= requests
	}
	var group sync.WaitGroup
	for client := range clients {
		group.Go(func() {
			for {
				i, more := take()
				if !more {
					return
				}
				passage := i
				if l.own {
					passage = client
				}
				o := l.ask(i, passage, rand.New(rand.NewPCG(seed, uint64(passage))))
				mu.Lock()
				all = append(all, o)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	report(all, time.Since(start), clients)
}

func (l *load) read(files, lengths string) error {
	for f := range strings.SplitSeq(files, ",") {
		raw, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		l.text = append(l.text, raw...)
	}
	for n := range strings.SplitSeq(lengths, ",") {
		v, err := strconv.Atoi(n)
		if err != nil || v < 0 || v > len(l.text) {
			return fmt.Errorf("--characters: got %q, want 0 to %d, the length of the text", n, len(l.text))
		}
		l.lengths = append(l.lengths, v)
	}
	return nil
}

var questions = []string{"What is this about?", "Summarise it in one sentence.", "Which names occur in it?", "What comes first in it?", "List three facts of it."}

// ask sends request i about a passage, which r chooses, again where it is refused for now.
func (l *load) ask(i, passage int, r *rand.Rand) (o outcome) {
	n := l.lengths[passage%len(l.lengths)]
	from := 0
	if !l.repeat {
		from = r.IntN(len(l.text) - n + 1)
	}
	text := strings.ToValidUTF8(string(l.text[from:from+n]), "")
	question := "Question " + strconv.Itoa(i) + ": " + questions[i%len(questions)]
	options := l.options
	if n > 0 && l.mark {
		options = append(slices.Clone(options), option.WithJSONSet("messages.0.content", []map[string]any{
			{"type": "text", "text": text + "\n\n", "cache_control": map[string]string{"type": "ephemeral"}}, {"type": "text", "text": question},
		}))
	}
	if n > 0 {
		question = text + "\n\n" + question
	}
	p := openai.ChatCompletionNewParams{
		Model:         l.model,
		Messages:      []openai.ChatCompletionMessageParamUnion{openai.UserMessage(question)},
		MaxTokens:     openai.Int(int64(l.maxTokens)),
		Temperature:   openai.Float(0),
		Logprobs:      openai.Bool(l.logProbs),
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	}
	for start := time.Now(); ; o.refusals++ {
		o.err = l.send(p, options, start, &o)
		if refused := (*openai.Error)(nil); !errors.As(o.err, &refused) || refused.StatusCode != http.StatusTooManyRequests {
			return o
		}
		time.Sleep(time.Duration(50+r.IntN(100)) * time.Millisecond)
	}
}

// send sends a request and reads its answer.
func (l *load) send(p openai.ChatCompletionNewParams, options []option.RequestOption, start time.Time, o *outcome) error {
	stream := l.client.Chat.Completions.NewStreaming(context.Background(), p, options...)
	defer stream.Close()
	last, done := time.Time{}, false
	for stream.Next() {
		c := stream.Current()
		if u := c.Usage; u.JSON.PromptTokens.Valid() {
			o.prompt, o.out, o.found = int(u.PromptTokens), int(u.CompletionTokens), int(u.PromptTokensDetails.CachedTokens)
			var eviction struct {
				Kept int64 `json:"kept_bytes"`
				Full int64 `json:"full_bytes"`
			}
			if raw := u.JSON.ExtraFields["eviction"].Raw(); raw != "" {
				if err := json.Unmarshal([]byte(raw), &eviction); err != nil {
					return fmt.Errorf("%w in %.100q", err, raw)
				}
			}
			o.kept, o.full = eviction.Kept, eviction.Full
		}
		if len(c.Choices) == 0 {
			continue
		}
		done = done || c.Choices[0].FinishReason != ""
		if c.Choices[0].Delta.Content == "" && len(c.Choices[0].Logprobs.Content) == 0 {
			continue
		}
		now := time.Now()
		if last.IsZero() {
			o.ttft = now.Sub(start)
		} else {
			o.gaps = append(o.gaps, now.Sub(last))
		}
		last = now
	}
	if err := stream.Err(); err != nil {
		return err
	}
	if !done {
		return errors.New("the stream has no end")
	}
	o.total = time.Since(start)
	return nil
}

func report(all []outcome, took time.Duration, clients int) {
	var ttft, gaps, total []time.Duration
	failures := map[string]int{}
	sum := struct{ ok, refusals, prompt, out, found int }{}
	var kept, full int64
	for _, o := range all {
		sum.refusals += o.refusals
		if o.err != nil {
			failures[o.err.Error()]++
			continue
		}
		sum.ok++
		sum.prompt += o.prompt
		sum.out += o.out
		sum.found += o.found
		kept += o.kept
		full += o.full
		ttft, total, gaps = append(ttft, o.ttft), append(total, o.total), append(gaps, o.gaps...)
	}
	second := func(v []time.Duration, q float64) float64 {
		if len(v) == 0 {
			return 0
		}
		slices.Sort(v)
		return float64(v[min(len(v)-1, int(q*float64(len(v))))].Microseconds()) / 1e6
	}
	json.NewEncoder(os.Stdout).Encode(map[string]any{
		"clients": clients, "requests": sum.ok, "errors": failures, "refusals": sum.refusals, "seconds": took.Seconds(),
		"requests_per_s": float64(sum.ok) / took.Seconds(), "tokens_per_s": float64(sum.out) / took.Seconds(), "prompt_tokens_per_s": float64(sum.prompt) / took.Seconds(),
		"prompt_tokens": sum.prompt, "cached_tokens": sum.found, "kept_share": float64(kept) / float64(max(1, full)),
		"ttft_p50_s": second(ttft, 0.5), "ttft_p99_s": second(ttft, 0.99), "itl_p50_s": second(gaps, 0.5), "itl_p99_s": second(gaps, 0.99), "itl_max_s": second(gaps, 1),
		"e2e_p50_s": second(total, 0.5),
	})
	if len(failures) > 0 {
		os.Exit(1)
	}
}
