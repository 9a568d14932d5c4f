package serving_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"glimpse/checkpoints/objectstore"
	"glimpse/checkpoints/objectstore/storetest"
	"glimpse/datasets"
	"glimpse/serving"
)

// recording is a server's configuration that records all answers.
func recording(dir string) func(c *serving.Config) {
	return func(c *serving.Config) { c.Record, c.RecordShare, c.RecordLimit = dir, 1, 1<<20 }
}

// answer asks for the answer to tokens, and returns its ids.
func (s *served) answer(t testing.TB, tokens []int32, p openai.CompletionNewParams, opt ...option.RequestOption) []int32 {
	t.Helper()
	p.Prompt = ids(tokens)
	if p.Model == "" {
		p.Model = "tiny"
	}
	got, err := s.Completions.New(t.Context(), p, opt...)
	if err != nil {
		t.Fatal(err)
	}
	said, err := s.model.Tokenizer.Encode(got.Choices[0].Text, false)
	if err != nil || len(said) != int(got.Usage.CompletionTokens) {
		t.Fatalf("%d ids of %q (%v), want %d", len(said), got.Choices[0].Text, err, got.Usage.CompletionTokens)
	}
	return said
}

// fixed asks for an answer of n tokens.
func (s *served) fixed(t testing.TB, tokens []int32, n int64) {
	t.Helper()
	got, err := s.Completions.New(t.Context(), openai.CompletionNewParams{Model: "tiny", Prompt: ids(tokens), MaxTokens: openai.Int(n)}, option.WithJSONSet("ignore_eos", true))
	if err != nil || got.Usage.CompletionTokens != n {
		t.Fatalf("answer %v (%v), want one of %d tokens", got, err, n)
	}
}

// recorded are the pairs of a folder, by their prompts.
func recorded(t testing.TB, dir string) map[string][]int32 {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string][]int32)
	for _, file := range files {
		_, pairs, err := datasets.ReadPairs(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pairs {
			if _, twice := out[fmt.Sprint(p.PromptIDs)]; twice {
				t.Errorf("pair %s: its prompt is there twice", p.ID)
			}
			out[fmt.Sprint(p.PromptIDs)] = p.ResponseIDs
		}
	}
	return out
}

// metric is the value of a line of /metrics; 0 where there is none.
func (s *served) metric(t testing.TB, line string) (v float64) {
	t.Helper()
	r, err := http.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	all, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.Lines(string(all)) {
		if number, ok := strings.CutPrefix(text, line+" "); ok {
			if _, err := fmt.Sscan(number, &v); err != nil {
				t.Fatal(err)
			}
		}
	}
	return v
}

// await waits until a line of /metrics has a value.
func (s *served) await(t testing.TB, line string, want float64) {
	t.Helper()
	for end := time.Now().Add(time.Minute); s.metric(t, line) != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s is %v, want %v", line, s.metric(t, line), want)
		}
	}
}

const recordedPairs = `glimpse_recorded_pairs_total{outcome="%s"}`

// ask asks six questions, greedy, sampled and streamed ones, and returns the answers by their prompts.
func (s *served) ask(t testing.TB) map[string][]int32 {
	want := make(map[string][]int32)
	for i := range 6 {
		tokens := s.document(t, 100+20*i, uint64(i))
		p := openai.CompletionNewParams{MaxTokens: openai.Int(int64(4 + 3*i)), Temperature: openai.Float(float64(i % 2)), Seed: openai.Int(3)}
		want[fmt.Sprint(tokens)] = s.answer(t, tokens, p)
	}
	return want
}

// TestRecord: what was asked and answered is what the trainer's reader reads, without what the header keeps out.
func TestRecord(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "traffic[1]")
	pattern := strings.ReplaceAll(dir, "[", `\[`)
	var want map[string][]int32
	t.Run("serve", func(t *testing.T) {
		s := serve(t, recording(dir))
		want = s.ask(t)
		s.answer(t, s.document(t, 300, 9), openai.CompletionNewParams{MaxTokens: openai.Int(4)}, option.WithHeader(serving.RecordHeader, "OFF"))
		for i, values := range [][]string{{"on", "off"}, {"off", "on"}, {"on, Off"}} { // with more than one, off holds
			s.answer(t, s.document(t, 320, uint64(20+i)), openai.CompletionNewParams{MaxTokens: openai.Int(4)}, option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
				r.Header[serving.RecordHeader] = values
				return next(r)
			}))
		}
		var refused *openai.Error
		if _, err := s.Completions.New(t.Context(), openai.CompletionNewParams{Model: "tiny", Prompt: ids([]int32{5})}, option.WithHeader(serving.RecordHeader, "of")); !errors.As(err, &refused) || !strings.Contains(refused.Message, "want on or off") {
			t.Errorf("a header that says neither on nor off: %v", err)
		}
		stream := s.Completions.NewStreaming(t.Context(), openai.CompletionNewParams{Model: "tiny", Prompt: ids(s.document(t, 310, 10)), MaxTokens: openai.Int(500)}, option.WithJSONSet("ignore_eos", true))
		stream.Next()
		stream.Close() // before the answer has ended
		s.await(t, `glimpse_request_success_total{finished_reason="abort"}`, 1)
		s.await(t, fmt.Sprintf(recordedPairs, "written"), 6)
		if early := recorded(t, pattern); len(early) != 0 {
			t.Errorf("%d pairs in a file that is not finished", len(early))
		}
	})
	checkRecorded(t, pattern, want)
}

func checkRecorded(t *testing.T, dir string, want map[string][]int32) {
	t.Helper()
	got := recorded(t, dir)
	if len(got) != len(want) {
		t.Errorf("%d pairs, want %d", len(got), len(want))
	}
	for prompt, response := range want {
		if !slices.Equal(got[prompt], response) {
			t.Errorf("prompt %.40s…: response %v was recorded, want %v", prompt, got[prompt], response)
		}
	}
}

// TestRecordToTheEndOfTheContext: the trainer takes no more tokens than the context has, of which the last one of an answer is not.
func TestRecordToTheEndOfTheContext(t *testing.T) {
	dir, n := t.TempDir(), 0
	t.Run("serve", func(t *testing.T) {
		s := serve(t, recording(dir))
		n = s.model.Config.MaxPositions
		tokens := slices.Concat(s.document(t, 900, 1), make([]int32, n))[:n-2]
		s.fixed(t, tokens, 3)
	})
	for _, response := range recorded(t, dir) {
		if len(response) != 2 {
			t.Errorf("%d tokens after a prompt of %d were recorded, want 2", len(response), n-2)
		}
	}
}

// TestRecordLimit: the folder never holds more than the limit, also when the next server goes on with it.
func TestRecordLimit(t *testing.T) {
	dir := t.TempDir()
	const limit = 4500
	for round, most := range []float64{5, 1} {
		t.Run(fmt.Sprint("serve ", round), func(t *testing.T) {
			s := serve(t, func(c *serving.Config) {
				recording(dir)(c)
				c.RecordLimit = limit
			})
			s.ask(t)
			written := func() float64 { return s.metric(t, fmt.Sprintf(recordedPairs, "written")) }
			dropped := func() float64 { return s.metric(t, fmt.Sprintf(recordedPairs, "limit")) }
			for end := time.Now().Add(time.Minute); written()+dropped() < 6 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			}
			if w, d := written(), dropped(); w+d != 6 || w > most || round == 0 && w == 0 {
				t.Errorf("%v written and %v dropped, want 6 in all, some and at most %v of them written", w, d, most)
			}
		})
		size := int64(0)
		for _, file := range must(filepath.Glob(filepath.Join(dir, "*"))) {
			size += must(os.Stat(file)).Size()
		}
		if size > limit || size < limit/2 {
			t.Errorf("%d bytes, want at most %d", size, limit)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestRecordShare: of many answers about the share is recorded.
func TestRecordShare(t *testing.T) {
	dir := t.TempDir()
	t.Run("serve", func(t *testing.T) {
		s := serve(t, func(c *serving.Config) {
			recording(dir)(c)
			c.RecordShare = 0.5
		})
		for i := range 40 {
			s.fixed(t, []int32{int32(5 + i)}, 2)
		}
	})
	if n := len(recorded(t, dir)); n < 8 || n > 32 {
		t.Errorf("%d of 40 answers were recorded at a share of a half", n)
	}
}

// TestRecordKilled: what a server has recorded when it is killed, the next one gives a name.
func TestRecordKilled(t *testing.T) {
	const variable = "GLIMPSE_TEST_RECORD"
	if dir := os.Getenv(variable); dir != "" { // the server that is killed
		s := serve(t, recording(dir))
		want := s.ask(t)
		s.await(t, fmt.Sprintf(recordedPairs, "written"), 6)
		fmt.Printf("\n%s%s\n", variable, must(json.Marshal(want)))
		time.Sleep(time.Hour)
	}
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestRecordKilled$")
	cmd.Env = append(os.Environ(), variable+"="+dir)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	var want map[string][]int32
	lines := bufio.NewScanner(out)
	for lines.Buffer(nil, 1<<20); want == nil && lines.Scan(); {
		if line, ok := strings.CutPrefix(lines.Text(), variable); ok {
			if err := json.Unmarshal([]byte(line), &want); err != nil {
				t.Fatal(err)
			}
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	if len(want) != 6 {
		t.Fatalf("the server has told %d answers, want 6", len(want))
	}
	left := must(filepath.Glob(filepath.Join(dir, ".recorded-*.partial")))
	if len(left) != 1 || len(recorded(t, dir)) != 0 {
		t.Fatalf("it has left %v, want one file that is not finished", left)
	}
	f, err := os.OpenFile(left[0], os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(`{"id":"a line that was not written to its en`)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Run("serve", func(t *testing.T) { serve(t, recording(dir)) })
	checkRecorded(t, dir, want)
	if all := must(filepath.Glob(filepath.Join(dir, ".*"))); len(all) != 0 {
		t.Errorf("%v are left", all)
	}
}

// TestRecordToABucket: finished files go to the bucket, also those that an earlier server could not send.
func TestRecordToABucket(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *storetest.Server) {
		t.Setenv("GLIMPSE_CACHE", t.TempDir())
		t.Setenv("AWS_REGION", "us-east-1")
		s3 := objectstore.Settings{Endpoint: store.URL}
		change := func(c *serving.Config) {
			recording("s3://test/traffic")(c)
			c.S3 = s3
		}
		var want map[string][]int32
		t.Run("without the bucket", func(t *testing.T) {
			store.Disturb(func(r *http.Request) storetest.Fault {
				if r.Method == http.MethodPut {
					return storetest.BadDigest
				}
				return storetest.Pass
			})
			want = serve(t, change).ask(t)
		})
		store.Disturb(nil)
		t.Run("with it", func(t *testing.T) { serve(t, change) })
		files, err := objectstore.LocalFiles(t.Context(), "s3://test/traffic", ".jsonl", s3, io.Discard) // as train reads them
		if err != nil || len(files) != 1 {
			t.Fatalf("files %v (%v), want one", files, err)
		}
		checkRecorded(t, filepath.Dir(files[0]), want)
	})
}
