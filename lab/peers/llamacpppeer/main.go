// Command llamacpppeer compares a model in a GGUF file with what llama.cpp makes of the same file:
// token ids, the chat template, greedy answers. lab/peers/check_llama_cpp.sh runs it.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"glimpse/checkpoints/gguf"
	"glimpse/model"
	"glimpse/model/chat"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// prompts are answered greedily.
var prompts = []string{
	"The capital of France is", "Water boils at", "def fibonacci(n):", "Once upon a time", "The largest planet of the solar system is",
	"1, 2, 3, 4, 5,", "To make a cup of tea, first", "The opposite of hot is", "A triangle has", "Shakespeare wrote",
	"In 1969, the first", "The quick brown fox", "Photosynthesis is the process by which", "import numpy as np\n", "Dear Sir or Madam,",
	"The three primary colours are", "My favourite book is", "Roses are red,", "E = mc^2 means that", "The meaning of life is",
}

func main() {
	server, path, texts := flag.String("server", "llama-server", "llama.cpp's server"), flag.String("model", "", "GGUF file"), flag.String("strings", "", `JSON file with "strings"`)
	flag.Parse()
	if err := run(*server, *path, *texts); err != nil {
		fmt.Fprintln(os.Stderr, "llamacpppeer:", err)
		os.Exit(1)
	}
}

type peer struct{ url string }

// ask posts a question and reads the answer.
func (p peer) ask(path string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	resp, err := http.Post(p.url+path, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}

func run(server, path, texts string) (err error) {
	m, err := model.Open(path, model.Options{})
	if err != nil {
		return err
	}
	defer m.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	process := exec.Command(server, "-m", path, "--port", strconv.Itoa(port), "-c", "2048", "-np", "1", "-ctk", "f32", "-ctv", "f32", "-fa", "off", "--jinja", "--log-disable")
	if err := process.Start(); err != nil {
		return err
	}
	defer func() { process.Process.Kill(); process.Wait() }()
	p := peer{fmt.Sprintf("http://127.0.0.1:%d", port)}
	for begin := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		resp, err := http.Get(p.url + "/health")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Since(begin) > 2*time.Minute {
			return errors.New("the server does not answer")
		}
	}
	return errors.Join(tokens(m, p, texts), template(m, p), answers(m, p, path))
}

// tokens compares the ids of texts, without what stands around them.
func tokens(m *model.Model, p peer, path string) error {
	var f struct{ Strings []string }
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	equal := 0
	for _, text := range f.Strings {
		var theirs struct{ Tokens []int32 }
		if err := p.ask("/tokenize", map[string]any{"content": text, "add_special": false, "parse_special": true}, &theirs); err != nil {
			return err
		}
		ours, err := m.Tokenizer.Encode(text, false)
		if err != nil {
			return err
		}
		if slices.Equal(ours, theirs.Tokens) {
			equal++
		} else {
			fmt.Printf("  %.60q: %v, llama.cpp %v\n", text, ours, theirs.Tokens)
		}
	}
	return report("token ids of texts", equal, len(f.Strings), len(f.Strings))
}

// template compares what the chat template makes of conversations.
func template(m *model.Model, p peer) error {
	t, err := chat.Parse(m.Tokenizer.Config().ChatTemplate)
	if err != nil {
		return err
	}
	conversations := [][]chat.Message{
		{{Role: "user", Content: "Hi, who are you?"}},
		{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "2 + 2?"}},
		{{Role: "user", Content: "Hi"}, {Role: "assistant", Content: "Hello!"}, {Role: "user", Content: " Bye \n"}},
	}
	equal := 0
	for _, c := range conversations {
		ours, err := t.Render(context.Background(), c, chat.Options{AddGenerationPrompt: true})
		if err != nil {
			return err
		}
		var messages []map[string]any
		for _, m := range c {
			messages = append(messages, map[string]any{"role": m.Role, "content": m.Content})
		}
		var theirs struct{ Prompt string }
		if err := p.ask("/apply-template", map[string]any{"messages": messages}, &theirs); err != nil {
			return err
		}
		if ours == theirs.Prompt {
			equal++
		} else {
			fmt.Printf("  %q, llama.cpp %q\n", ours, theirs.Prompt)
		}
	}
	return report("rendered conversations", equal, len(conversations), len(conversations))
}

// answers compares greedy answers. Where weights are in blocks, llama.cpp rounds activations to 8
// bits and close calls go another way, so that there the answers are only shown. Of a file in F32
// nine of ten must be equal.
func answers(m *model.Model, p peer, path string) error {
	const most = 16
	equal, tokens, want := 0, 0, len(prompts)*9/10
	file, err := gguf.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if slices.ContainsFunc(file.Tensors(), func(t gguf.Tensor) bool { return t.Format.Elems > 1 }) {
		want = 0
	}
	for _, prompt := range prompts {
		ids, err := m.Encode(prompt)
		if err != nil {
			return err
		}
		var theirs struct{ Tokens []int32 }
		err = p.ask("/completion", map[string]any{"prompt": ids, "n_predict": most, "temperature": 0, "top_k": 1, "samplers": []string{"top_k"}, "cache_prompt": false, "return_tokens": true}, &theirs)
		if err != nil {
			return err
		}
		r, cache := runner.New(m), kvcache.New(m)
		logits, err := r.Prefill(context.Background(), cache, ids, runner.PrefillOptions{})
		if err != nil {
			return err
		}
		ours, _, err := r.Continue(context.Background(), cache, runner.HostLogits(logits), runner.GenerateOptions{MaxNew: most})
		if err != nil {
			return err
		}
		if n := len(theirs.Tokens); n > 0 && slices.Contains(m.Config.EOS, theirs.Tokens[n-1]) {
			theirs.Tokens = theirs.Tokens[:n-1]
		}
		same := 0
		for same < min(len(ours), len(theirs.Tokens)) && ours[same] == theirs.Tokens[same] {
			same++
		}
		tokens += same
		if same == len(ours) && same == len(theirs.Tokens) {
			equal++
			continue
		}
		a, _ := m.Tokenizer.Decode(ours, false)
		b, _ := m.Tokenizer.Decode(theirs.Tokens, false)
		fmt.Printf("  %q: %q, llama.cpp %q\n", prompt, a, b)
	}
	fmt.Printf("greedy answers agree for %.1f of %d tokens on average\n", float64(tokens)/float64(len(prompts)), most)
	return report("greedy answers", equal, len(prompts), want)
}

func report(what string, equal, of, want int) error {
	fmt.Printf("%s: %d of %d equal\n", what, equal, of)
	if equal < want {
		return fmt.Errorf("%s: %d of %d equal, want at least %d", what, equal, of, want)
	}
	return nil
}
