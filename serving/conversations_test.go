package serving_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"glimpse/datasets"
	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/model/chat"
	"glimpse/model/runner"
	"glimpse/serving"
)

const (
	multiTurn  = "rocketkv-mt"
	turnBudget = 48
	turnNew    = 12
)

// ofTurns serves without shared prefixes, so that cached_tokens are those of conversations alone.
func ofTurns(c *serving.Config) { c.Prefix = 0 }

// message is the text of a document that a message asks about.
func (s *served) message(t testing.TB, tokens int, which uint64) string {
	t.Helper()
	text, err := datasets.WordsText(s.document(t, tokens, which))
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(text, "<user> ")
	body, _, _ = strings.Cut(body, " <eot>")
	return body
}

// inTurns is what a session answers to messages from turn to turn, as in "evict chat", and the prompt of the last one.
func (s *served) inTurns(t testing.TB, policy string, users ...string) (answers []string, last []int32) {
	t.Helper()
	named, err := s.model.PolicyWith(policy, "")
	if err != nil {
		t.Fatal(err)
	}
	rt := eviction.NewRuntime(s.model.Model)
	session, err := rt.NewSession(named.Configured, eviction.Pairs(turnBudget))
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(rt, 1)
	if err != nil {
		t.Fatal(err)
	}
	var messages []chat.Message
	for _, text := range users {
		messages = append(messages, chat.Message{Role: "user", Content: text})
		if last, err = s.model.EncodeChat(t.Context(), messages, chat.Options{}); err != nil {
			t.Fatal(err)
		}
		ids, whole, err := s.model.EncodeTurn(t.Context(), messages, chat.Options{})
		if err == nil && whole {
			var stand int
			stand, err = session.Rewind(ids)
			ids = ids[stand:]
		}
		if err != nil {
			t.Fatal(err)
		}
		a, err := e.Submit(engine.Request{Session: session, Prompt: ids, Generate: runner.GenerateOptions{MaxNew: turnNew}})
		for err == nil && !a.Done() {
			_, err = e.Step(t.Context())
		}
		if err = cmp.Or(err, a.Err()); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, a.Text())
		messages = append(messages, chat.Message{Role: "assistant", Content: strings.TrimSpace(a.Text())})
	}
	return answers, last
}

// talk asks for the answer to the last of the messages, between which answers stand.
func talk(policy string, users, answers []string) openai.ChatCompletionNewParams {
	p := openai.ChatCompletionNewParams{Model: fmt.Sprintf("tiny@%s:%d", policy, turnBudget), MaxTokens: openai.Int(turnNew), Temperature: openai.Float(0)}
	for i, text := range users {
		p.Messages = append(p.Messages, openai.UserMessage(text))
		if i < len(users)-1 {
			p.Messages = append(p.Messages, openai.AssistantMessage(answers[i]))
		}
	}
	return p
}

// TestConversationsGoOn: under a policy that keeps turns, later turns run what is new alone and answer as "evict chat" does,
// streamed or not; under others they run all.
func TestConversationsGoOn(t *testing.T) {
	s := serve(t, ofTurns)
	users := []string{s.message(t, 300, 3), question, "karl " + question, s.message(t, 200, 4)}
	want, _ := s.inTurns(t, multiTurn, users...)
	var answers []string
	stood := int64(0)
	for i := range users {
		p := talk(multiTurn, users[:i+1], answers)
		var usage openai.CompletionUsage
		text := ""
		if i == 2 {
			p.StreamOptions.IncludeUsage = openai.Bool(true)
			stream := s.Chat.Completions.NewStreaming(t.Context(), p)
			for stream.Next() {
				c := stream.Current()
				if usage = c.Usage; len(c.Choices) > 0 {
					text += c.Choices[0].Delta.Content
				}
			}
			if err := stream.Err(); err != nil {
				t.Fatal(err)
			}
		} else {
			got, err := s.Chat.Completions.New(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			text, usage = got.Choices[0].Message.Content, got.Usage
		}
		if text != want[i] {
			t.Errorf("turn %d: %q, evict chat says %q", i+1, text, want[i])
		}
		cached := usage.PromptTokensDetails.CachedTokens
		if (cached > 0) != (i > 0) || cached < stood || cached >= usage.PromptTokens {
			t.Errorf("turn %d: %d of %d tokens of the prompt were cached, of which %d were there before", i+1, cached, usage.PromptTokens, stood)
		}
		stood, answers = usage.PromptTokens+usage.CompletionTokens-1, append(answers, text)
	}
	if q, hits, tokens := s.metric(t, "glimpse_conversation_queries"), s.metric(t, "glimpse_conversation_hits"), s.metric(t, "glimpse_conversation_hit_tokens"); q != 4 || hits != 3 || tokens < 900 {
		t.Errorf("%v prompts were looked for, %v found with %v tokens", q, hits, tokens)
	}
	if n, bytes, share := s.metric(t, "glimpse_conversation_sessions"), s.metric(t, "glimpse_conversation_bytes"), s.metric(t, "glimpse_kv_cache_usage_perc"); n != 1 || bytes <= 0 || share < bytes/(1<<30) {
		t.Errorf("%v sessions wait, %v bytes, %v of the memory", n, bytes, share)
	}
	if s.metric(t, "glimpse_prefix_cache_hits") != 0 {
		t.Error("tokens of a conversation count as those of shared prefixes")
	}
	for _, policy := range []string{"snapkv", "full", "rocketkv"} {
		answers = nil
		for i := range 2 {
			got, err := s.Chat.Completions.New(t.Context(), talk(policy, users[:i+1], answers))
			if err != nil {
				t.Fatal(err)
			}
			_, tokens := s.inTurns(t, policy, users[:i+1]...)
			text, cached := got.Choices[0].Message.Content, got.Usage.PromptTokensDetails.CachedTokens
			if want := s.alone(t, tokens, policy, turnBudget, turnNew); i == 0 && text != want || cached != 0 {
				t.Errorf("%s, turn %d: %q with %d tokens cached, want %q and none", policy, i+1, text, cached, want)
			}
			answers = append(answers, text)
		}
	}
}

// TestForksOfAConversation: of several requests that go on with a conversation at the same time one takes its session; all
// others run it anew, and answer as a new conversation.
func TestForksOfAConversation(t *testing.T) {
	s := serve(t, ofTurns)
	users := []string{s.message(t, 300, 3), question}
	want, last := s.inTurns(t, multiTurn, users...)
	first, err := s.Chat.Completions.New(t.Context(), talk(multiTurn, users[:1], nil))
	if err != nil {
		t.Fatal(err)
	}
	anew := s.alone(t, last, multiTurn, turnBudget, turnNew)
	var mu sync.Mutex
	var all sync.WaitGroup
	took := 0
	for range 6 {
		all.Go(func() {
			got, err := s.Chat.Completions.New(t.Context(), talk(multiTurn, users, []string{first.Choices[0].Message.Content}))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			want := want[1]
			if got.Usage.PromptTokensDetails.CachedTokens == 0 {
				want = anew
			} else {
				took++
			}
			if text := got.Choices[0].Message.Content; text != want {
				t.Errorf("%q with %d tokens cached, want %q", text, got.Usage.PromptTokensDetails.CachedTokens, want)
			}
		})
	}
	all.Wait()
	if took != 1 {
		t.Errorf("%d requests went on with the session, want 1", took)
	}
}

// TestConversationsArePrivate: with another key, or none, a conversation does not go on, nor as plain text.
func TestConversationsArePrivate(t *testing.T) {
	s := serve(t, ofTurns)
	users := []string{s.message(t, 200, 3), question}
	cached := func(users, answers []string, opts ...option.RequestOption) (n int64, text string) {
		t.Helper()
		got, err := s.Chat.Completions.New(t.Context(), talk(multiTurn, users, answers), opts...)
		if err != nil {
			t.Fatal(err)
		}
		return got.Usage.PromptTokensDetails.CachedTokens, got.Choices[0].Message.Content
	}
	one, two, none := option.WithAPIKey("one"), option.WithAPIKey("two"), option.WithHeaderDel("Authorization")
	_, text := cached(users[:1], nil, one)
	answers := []string{text}
	_, whole := s.inTurns(t, multiTurn, users...)
	plain, err := s.Completions.New(t.Context(), openai.CompletionNewParams{Model: openai.CompletionNewParamsModel(fmt.Sprintf("tiny@%s:%d", multiTurn, turnBudget)), Prompt: ids(whole), MaxTokens: openai.Int(turnNew), Temperature: openai.Float(0)}, one)
	if err != nil {
		t.Fatal(err)
	}
	if want := s.alone(t, whole, multiTurn, turnBudget, turnNew); plain.Choices[0].Text != want || plain.Usage.PromptTokensDetails.CachedTokens != 0 {
		t.Errorf("a plain prompt: %q, %d tokens cached, want %q and none", plain.Choices[0].Text, plain.Usage.PromptTokensDetails.CachedTokens, want)
	}
	for i, c := range []struct {
		key   option.RequestOption
		found bool
	}{{two, false}, {none, false}, {one, true}, {one, false}} { // of the last the session has gone on
		if n, _ := cached(users, answers, c.key); n > 0 != c.found {
			t.Errorf("request %d: %d tokens were cached, want some: %v", i, n, c.found)
		}
	}
	_, text = cached(users[:1], nil, none)
	if n, _ := cached(users, []string{text}, none); n == 0 {
		t.Error("without a key a conversation does not go on")
	}
}

// TestRewrittenConversations: a chat template that rewrites earlier answers, as those do that drop thoughts, and a client that
// does, are answered as a new conversation.
func TestRewrittenConversations(t *testing.T) {
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS("../model/builtin/reference")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "tokenizer_config.json")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const answer = "' <header> <assistant> <newline> ' + message['content'] + ' <eot>'"
	shorter := strings.Replace(string(raw), answer, "' <header> <assistant> <newline> ' + message['content'].split(' ')|last + ' <eot>'", 1)
	if shorter == string(raw) {
		t.Fatalf("the template has no %s", answer)
	}
	if err := os.WriteFile(file, []byte(shorter), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*served{"template": serveModel(t, folder, ofTurns), "client": serve(t, ofTurns)} {
		users := []string{s.message(t, 200, 3), question}
		first, err := s.Chat.Completions.New(t.Context(), talk(multiTurn, users[:1], nil))
		if err != nil {
			t.Fatal(err)
		}
		said := first.Choices[0].Message.Content
		words := strings.Fields(said)
		if len(words) < 2 {
			t.Fatalf("%q has too few words to be rewritten", said)
		}
		if name == "client" {
			said = words[len(words)-1]
		}
		got, err := s.Chat.Completions.New(t.Context(), talk(multiTurn, users, []string{said}))
		if err != nil {
			t.Fatal(err)
		}
		whole, err := s.model.EncodeChat(t.Context(), []chat.Message{{Role: "user", Content: users[0]}, {Role: "assistant", Content: said}, {Role: "user", Content: users[1]}}, chat.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if want := s.alone(t, whole, multiTurn, turnBudget, turnNew); got.Choices[0].Message.Content != want || got.Usage.PromptTokensDetails.CachedTokens != 0 {
			t.Errorf("%s: %q, %d tokens cached, want %q and none", name, got.Choices[0].Message.Content, got.Usage.PromptTokensDetails.CachedTokens, want)
		}
	}
}

// TestConversationsLeaveRoom: sessions that wait go when requests need their room, those that have waited longest first, and the
// memory stays below the limit; what they had is run anew.
func TestConversationsLeaveRoom(t *testing.T) {
	s := serve(t, func(c *serving.Config) { c.Prefix, c.Memory, c.Rows = 0, 14<<20, 2 })
	var all sync.WaitGroup
	const talks = 8
	users, answers := make([][]string, talks), make([][]string, talks)
	wants, anew := make([]string, talks), make([]string, talks)
	for i := range talks {
		users[i] = []string{s.message(t, 400, uint64(i)), question}
		in, last := s.inTurns(t, multiTurn, users[i]...)
		wants[i], anew[i] = in[1], s.alone(t, last, multiTurn, turnBudget, turnNew)
	}
	var mu sync.Mutex
	went := 0
	ask := func(i, turn int) {
		got, err := s.Chat.Completions.New(t.Context(), talk(multiTurn, users[i][:turn+1], answers[i]))
		if err != nil {
			t.Errorf("conversation %d, turn %d: %v", i, turn+1, err)
			return
		}
		if share := s.metric(t, "glimpse_kv_cache_usage_perc"); share > 1 {
			t.Errorf("%v of the memory are used", share)
		}
		text := got.Choices[0].Message.Content
		if turn == 0 {
			answers[i] = []string{text}
			return
		}
		want := anew[i]
		if got.Usage.PromptTokensDetails.CachedTokens > 0 {
			mu.Lock()
			went++
			mu.Unlock()
			want = wants[i]
		}
		if text != want {
			t.Errorf("conversation %d: %q, want %q", i, text, want)
		}
	}
	for i := range talks - 1 {
		all.Go(func() { ask(i, 0) })
	}
	all.Wait()
	ask(talks-1, 0) // whose session is the last to go
	ask(talks-1, 1)
	if went != 1 {
		t.Error("the conversation that was asked last does not go on")
	}
	for i := range talks - 1 {
		all.Go(func() { ask(i, 1) })
	}
	all.Wait()
	if letGo := s.metric(t, "glimpse_conversation_evictions"); letGo == 0 || went == 0 || went == talks {
		t.Errorf("%d of %d conversations went on, %v sessions were let go of, want some of each", went, talks, letGo)
	}
}

// TestCutConversation: a client that is gone in an answer leaves a session that goes on with what was said, and one that is
// gone while the prompt runs leaves none; neither changes what is answered next.
func TestCutConversation(t *testing.T) {
	s := serve(t, func(c *serving.Config) { c.Prefix, c.MaxNew = 0, 3000 })
	users := []string{s.message(t, 300, 3), question}
	want, last := s.inTurns(t, multiTurn, users...)
	anew := s.alone(t, last, multiTurn, turnBudget, turnNew)
	for range 6 {
		first, err := s.Chat.Completions.New(t.Context(), talk(multiTurn, users[:1], nil))
		if err != nil {
			t.Fatal(err)
		}
		answers := []string{first.Choices[0].Message.Content}
		for _, tokens := range []int{0, 2} {
			ctx, cancel := context.WithCancel(t.Context())
			p := talk(multiTurn, users, answers)
			p.MaxTokens = openai.Int(2000)
			stream := s.Chat.Completions.NewStreaming(ctx, p, option.WithJSONSet("ignore_eos", true))
			for range tokens {
				stream.Next()
			}
			cancel()
			stream.Close()
			got, err := s.Chat.Completions.New(t.Context(), talk(multiTurn, users, answers))
			if err != nil {
				t.Fatal(err)
			}
			text, cached := got.Choices[0].Message.Content, got.Usage.PromptTokensDetails.CachedTokens
			if !slices.Contains([]string{want[1], anew}, text) || cached > 0 && text != want[1] || cached == 0 && text != anew {
				t.Errorf("%q with %d tokens cached, in turns %q, anew %q", text, cached, want[1], anew)
			}
		}
	}
}
