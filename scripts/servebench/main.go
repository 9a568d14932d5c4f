// Servebench puts load on a server of OpenAI's API and prints a JSON line of what came of it:
//
//	go run ./scripts/servebench --base-url http://127.0.0.1:8080/v1 --text README.md --clients 32 --requests 96
//
// Every request is a passage of the text with a question behind it, streamed. Answers with 429 are asked again.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

type load struct {
	url, key, model string
	text            []byte
	lengths         []int
	maxTokens       int
	repeat          bool // all requests are about the passage of the first
	ignoreEnd       bool
	logProbs        bool // tell of tokens that have no text
	client          *http.Client
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
	var files, lengths string
	var clients, requests int
	var seed uint64
	var within time.Duration
	flag.StringVar(&l.url, "base-url", "http://127.0.0.1:8080/v1", "of the server")
	flag.StringVar(&l.key, "key", "", "API key")
	flag.StringVar(&l.model, "model", "", "model, as NAME@POLICY:BUDGET")
	flag.StringVar(&files, "text", "README.md", "files of the text, with commas between")
	flag.StringVar(&lengths, "characters", "4000", "lengths of passages, with commas between, taken in turn")
	flag.IntVar(&clients, "clients", 8, "that ask at the same time")
	flag.IntVar(&requests, "requests", 32, "in all")
	flag.DurationVar(&within, "for", 0, "ask for so long in the place of --requests")
	flag.IntVar(&l.maxTokens, "max-tokens", 64, "of an answer")
	flag.BoolVar(&l.repeat, "same", false, "ask different questions about the same passage")
	flag.BoolVar(&l.ignoreEnd, "ignore-eos", true, "answers have all --max-tokens")
	flag.BoolVar(&l.logProbs, "logprobs", false, "ask for the tokens, so that times are between tokens; else between pieces of text, which not every token has")
	flag.Uint64Var(&seed, "seed", 1, "of the passages")
	flag.Parse()
	if err := l.read(files, lengths); err != nil {
		fmt.Fprintln(os.Stderr, "servebench:", err)
		os.Exit(1)
	}
	l.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients, MaxConnsPerHost: 0}}
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
	for range clients {
		group.Go(func() {
			for {
				i, more := take()
				if !more {
					return
				}
				o := l.ask(i, rand.New(rand.NewPCG(seed, uint64(i))))
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
		if err != nil || v < 1 || v > len(l.text) {
			return fmt.Errorf("--characters: got %q, want 1 to %d, the length of the text", n, len(l.text))
		}
		l.lengths = append(l.lengths, v)
	}
	return nil
}

var questions = []string{"What is this about?", "Summarise it in one sentence.", "Which names occur in it?", "What comes first in it?", "List three facts of it."}

// ask sends one request, again where it is refused for now.
func (l *load) ask(i int, r *rand.Rand) (o outcome) {
	n := l.lengths[i%len(l.lengths)]
	from := 0
	if !l.repeat {
		from = r.IntN(len(l.text) - n + 1)
	}
	passage := strings.ToValidUTF8(string(l.text[from:from+n]), "")
	body := map[string]any{
		"messages":   []any{map[string]string{"role": "user", "content": passage + "\n\nQuestion " + strconv.Itoa(i) + ": " + questions[i%len(questions)]}},
		"max_tokens": l.maxTokens, "temperature": 0, "stream": true, "stream_options": map[string]bool{"include_usage": true},
	}
	if l.model != "" {
		body["model"] = l.model
	}
	if l.logProbs {
		body["logprobs"] = true
	}
	if l.ignoreEnd {
		body["ignore_eos"] = true
	}
	raw, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	for start := time.Now(); ; {
		again, err := l.send(raw, start, &o)
		if !again {
			o.err = err
			return o
		}
		o.refusals++
		time.Sleep(time.Duration(50+r.IntN(100)) * time.Millisecond)
	}
}

// send sends a request and reads its answer. again tells that it was refused for now.
func (l *load) send(raw []byte, start time.Time, o *outcome) (again bool, err error) {
	req, err := http.NewRequest("POST", l.url+"/chat/completions", bytes.NewReader(raw))
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/json")
	if l.key != "" {
		req.Header.Set("Authorization", "Bearer "+l.key)
	}
	r, err := l.client.Do(req)
	if err != nil {
		return false, err
	}
	defer r.Body.Close()
	if r.StatusCode == http.StatusTooManyRequests {
		io.Copy(io.Discard, r.Body)
		return true, nil
	}
	if r.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(r.Body, 1000))
		return false, fmt.Errorf("%s: %s", r.Status, text)
	}
	last, done := time.Time{}, false
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			done = true
			continue
		}
		var c struct {
			Choices []struct {
				Delta    struct{ Content string }
				LogProbs struct{ Content []struct{} }
			}
			Error *struct{ Message string }
			Usage *struct {
				Prompt  int `json:"prompt_tokens"`
				Out     int `json:"completion_tokens"`
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
				Eviction struct {
					Kept int64 `json:"kept_bytes"`
					Full int64 `json:"full_bytes"`
				}
			}
		}
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			return false, fmt.Errorf("%w in %.100q", err, data)
		}
		if c.Error != nil {
			return false, errors.New(c.Error.Message)
		}
		if u := c.Usage; u != nil {
			o.prompt, o.out, o.found, o.kept, o.full = u.Prompt, u.Out, u.Details.Cached, u.Eviction.Kept, u.Eviction.Full
		}
		if len(c.Choices) == 0 || c.Choices[0].Delta.Content == "" && len(c.Choices[0].LogProbs.Content) == 0 {
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
	if err := lines.Err(); err != nil {
		return false, err
	}
	if !done {
		return false, errors.New("the stream has no end")
	}
	o.total = time.Since(start)
	return false, nil
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
