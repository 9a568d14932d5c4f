package serving_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"glimpse/checkpoints/objectstore"
	"glimpse/serving"
)

const reference = "../adapters/reference"

// send is a request with a key, "" for none, whose body is sent where it is not "".
func (s *served) send(ctx context.Context, method, path, key, body string) (status int, answer map[string]any, err error) {
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer a.Body.Close()
	raw, err := io.ReadAll(a.Body)
	if err == nil {
		err = json.Unmarshal(raw, &answer)
	}
	return a.StatusCode, answer, err
}

func (s *served) adapter(t testing.TB, method, path, body string) (status int, answer string) {
	t.Helper()
	status, told, err := s.send(t.Context(), method, "/v1/adapters"+path, "", body)
	if err != nil {
		t.Fatal(err)
	}
	return status, fmt.Sprint(told)
}

// silent is an object store that takes connections and never answers. asked has one more for each.
func silent(t *testing.T) (s3 objectstore.Settings, asked <-chan struct{}) {
	t.Helper()
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"} {
		t.Setenv(name, value)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	connections := make(chan struct{}, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			connections <- struct{}{}
		}
	}()
	return objectstore.Settings{Endpoint: "http://" + l.Addr().String(), Region: "nowhere"}, connections
}

// TestLoadingHoldsNobodyUp: while an adapter is loaded from a bucket that never replies, requests are answered, other adapters come and go,
// and its name is taken; it ends with its client, and with its time.
func TestLoadingHoldsNobodyUp(t *testing.T) {
	s3, asked := silent(t)
	s := serve(t, func(c *serving.Config) {
		c.Policy, c.S3, c.AdapterTimeout = "lookaheadkv", s3, time.Minute
		c.AdapterDirs = []string{"s3://bucket", reference}
	})
	const slow = `{"name":"slow","from":"s3://bucket/adapter"}`
	ctx, hangUp := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, _, err := s.send(ctx, "POST", "/v1/adapters", "", slow)
		first <- err
	}()
	<-asked
	begun := time.Now()
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/v1/completions", `{"prompt":"never karl","max_tokens":2}`, 200},
		{"POST", "/v1/completions", `{"prompt":"never karl","max_tokens":2,"eviction":{"policy":"judgeq"}}`, 200},
		{"POST", "/v1/completions", `{"prompt":"never karl","max_tokens":2,"eviction":{"policy":"h2o"}}`, 200},
		{"GET", "/v1/adapters", "", 200},
		{"GET", "/v1/models", "", 200},
		{"POST", "/v1/adapters", slow, 409},
		{"POST", "/v1/adapters", `{"name":"quick","from":"judgeq"}`, 200},
		{"DELETE", "/v1/adapters/slow", "", 404},
		{"DELETE", "/v1/adapters/quick", "", 200},
	} {
		within, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		status, answer, err := s.send(within, c.method, c.path, "", c.body)
		cancel()
		if err != nil || status != c.status {
			t.Fatalf("%s %s %s: %d %v, error %v, want %d", c.method, c.path, c.body, status, answer, err, c.status)
		}
	}
	t.Logf("nine requests took %v", time.Since(begun))
	hangUp()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the first load: error %v", err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) { // until its name is free
		if status, answer := s.adapter(t, "POST", "", `{"name":"slow","from":"judgeq"}`); status == 200 {
			break
		} else if status != 409 || time.Now().After(deadline) {
			t.Fatalf("the name of a load that is given up: %d %s", status, answer)
		}
	}
}

// TestLoadingEnds: with its time, and with the server.
func TestLoadingEnds(t *testing.T) {
	s3, asked := silent(t)
	s := serve(t, func(c *serving.Config) {
		c.S3, c.AdapterTimeout, c.AdapterDirs = s3, 200*time.Millisecond, []string{"s3://bucket/adapters"}
	})
	if status, answer := s.adapter(t, "POST", "", `{"name":"slow","from":"s3://bucket/adapters/a"}`); status != 504 || !strings.Contains(answer, "adapter_timeout") {
		t.Errorf("%d %s, want 504", status, answer)
	}
	<-asked
	long := serve(t, func(c *serving.Config) { c.S3, c.AdapterDirs = s3, []string{"s3://bucket/adapters"} })
	go long.send(t.Context(), "POST", "/v1/adapters", "", `{"from":"s3://bucket/adapters/a"}`)
	<-asked
	begun := time.Now()
	long.http.CloseClientConnections()
	if err := long.server.Close(); err != nil {
		t.Error(err)
	}
	long.server = nil
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("the server went after %v", took)
	}
}

// TestDefaultStays: requests that name no adapter are answered under the adapter that they were answered under at first, whatever others
// come and go, and none that they need can be taken away.
func TestDefaultStays(t *testing.T) {
	for _, c := range []struct {
		name, policy string
		steps        []string // "+NAME FROM" loads, "-NAME" unloads; "!" before it is refused
	}{
		{"others come and go", "lookaheadkv", []string{"+a2 lookaheadkv", "+a3 lookaheadkv", "-a3", "-a2"}},
		{"another first", "lookaheadkv", []string{"+a lookaheadkv", "+b judgeq", "-a", "-b"}},
		{"its own", "lookaheadkv", []string{"!-shipped", "+a2 lookaheadkv", "!-shipped"}},
		{"of another policy", "judgeq", []string{"+a2 judgeq", "+a3 lookaheadkv", "!-shipped", "-a2", "-a3"}},
		{"one that needs none", "snapkv", []string{"+a2 lookaheadkv", "-shipped", "-a2", "+a2 judgeq"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, func(config *serving.Config) { config.Policy, config.AdapterDirs = c.policy, []string{reference} })
			ask := func(step, body string) string {
				t.Helper()
				status, answer := s.post(t, "/v1/completions", `{"prompt":"never karl lantern","max_tokens":2,"temperature":0`+body+`}`)
				usage, _ := answer["usage"].(map[string]any)
				of, _ := usage["eviction"].(map[string]any)
				policy, _ := of["policy"].(string)
				if status != 200 {
					t.Errorf("after %s%s: %d %v", step, body, status, answer)
				}
				return policy
			}
			want := ask("the start", "")
			for _, step := range c.steps {
				action, refused := strings.CutPrefix(step, "!")
				status, answer := 0, ""
				if name, unload := strings.CutPrefix(action, "-"); unload {
					status, answer = s.adapter(t, "DELETE", "/"+name, "")
				} else {
					name, from, _ := strings.Cut(action[1:], " ")
					status, answer = s.adapter(t, "POST", "", fmt.Sprintf(`{"name":%q,"from":%q}`, name, from))
				}
				if refused && (status != 409 || !strings.Contains(answer, "shipped")) || !refused && status != 200 {
					t.Errorf("%s: %d %s", step, status, answer)
				}
				if got := ask(step, ""); got != want {
					t.Errorf("after %s: answered under %q, want %q", step, got, want)
				}
				if got := ask(step, `,"eviction":{"policy":"`+c.policy+`"}`); got != want {
					t.Errorf("after %s, the policy by name: answered under %q, want %q", step, got, want)
				}
			}
		})
	}
}

// TestPolicyByName: a policy that a request names without an adapter is that of the adapter that has been there longest.
func TestPolicyByName(t *testing.T) {
	s := serve(t, func(c *serving.Config) { c.AdapterDirs = []string{reference} })
	for _, c := range []struct{ method, path, body, want string }{
		{"POST", "", `{"name":"b","from":"judgeq"}`, "judgeq/shipped"},
		{"POST", "", `{"name":"a","from":"judgeq"}`, "judgeq/shipped"},
		{"DELETE", "/shipped", "", "judgeq/b"},
		{"POST", "", `{"from":"shipped"}`, "judgeq/b"},
		{"DELETE", "/b", "", "judgeq/a"},
	} {
		if status, answer := s.adapter(t, c.method, c.path, c.body); status != 200 {
			t.Fatalf("%s %s %s: %d %s", c.method, c.path, c.body, status, answer)
		}
		_, answer := s.post(t, "/v1/completions", `{"prompt":"never karl lantern","max_tokens":2,"eviction":{"policy":"judgeq"}}`)
		if !strings.Contains(fmt.Sprint(answer), c.want) {
			t.Errorf("after %s%s %s: %v, want an answer under %s", c.method, c.path, c.body, answer, c.want)
		}
	}
}

// TestNamelessAdapters have the names of their folders, and can be unloaded by them.
func TestNamelessAdapters(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"plain", "with blanks & more", "...", "überblick-1.2_x"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(reference, "judgeq"))); err != nil {
			t.Fatal(err)
		}
	}
	s := serve(t, func(c *serving.Config) { c.AdapterDirs = []string{dir, reference} })
	for _, c := range []struct{ from, name string }{
		{"plain", "plain"}, {filepath.Join(dir, "plain") + "/", "plain"}, {"with blanks & more", "with-blanks---more"}, {"...", "adapter"}, {"überblick-1.2_x", "überblick-1.2_x"},
		{"lookaheadkv", "lookaheadkv"}, {reference, "reference"},
	} {
		if c.from == reference { // which a registry lists, one folder above
			c.from, c.name = filepath.Join(reference, "judgeq"), "judgeq"
		}
		status, answer := s.adapter(t, "POST", "", fmt.Sprintf(`{"from":%q}`, c.from))
		if status != 200 || !strings.Contains(answer, "name:"+c.name+" ") {
			t.Errorf("%s: %d %s, want the name %s", c.from, status, answer, c.name)
		}
		if status, answer := s.adapter(t, "POST", "", fmt.Sprintf(`{"from":%q}`, c.from)); status != 409 {
			t.Errorf("%s once more: %d %s, want 409", c.from, status, answer)
		}
		if status, answer := s.adapter(t, "DELETE", "/"+c.name, ""); status != 200 {
			t.Errorf("%s: unload: %d %s", c.from, status, answer)
		}
	}
	for _, name := range []string{"..", "a/b", "a:b", "a@b", "a b", "a\nb", strings.Repeat("x", 101)} {
		if status, answer := s.adapter(t, "POST", "", fmt.Sprintf(`{"name":%q,"from":"plain"}`, name)); status != 400 || !strings.Contains(answer, "param:name") {
			t.Errorf("name %q: %d %s, want 400", name, status, answer)
		}
	}
}

// TestPlacesOfAdapters: adapters are loaded from below the folders and buckets that the operator has named. What lies elsewhere, what a
// link leads to and what is not there are answered alike.
func TestPlacesOfAdapters(t *testing.T) {
	s3, asked := silent(t)
	dir := t.TempDir()
	allowed, outside := filepath.Join(dir, "allowed"), filepath.Join(dir, "allowed-not")
	adapter := os.DirFS(filepath.Join(reference, "judgeq"))
	for _, to := range []string{filepath.Join(allowed, "good"), filepath.Join(allowed, "deep", "er"), filepath.Join(allowed, "leaky"), filepath.Join(allowed, "waits"), outside} {
		if err := os.CopyFS(to, adapter); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		os.Symlink(outside, filepath.Join(allowed, "link-out")),
		os.Symlink("../allowed-not", filepath.Join(allowed, "link-up")),
		os.Symlink("/nowhere", filepath.Join(allowed, "link-lost")),
		os.Symlink("good", filepath.Join(allowed, "link-in")),
		os.Mkdir(filepath.Join(allowed, "empty"), 0o700),
		os.WriteFile(filepath.Join(allowed, "file"), nil, 0o600),
		os.Remove(filepath.Join(allowed, "leaky", "glimpse.json")),
		os.Symlink(filepath.Join(outside, "glimpse.json"), filepath.Join(allowed, "leaky", "glimpse.json")),
		os.Remove(filepath.Join(allowed, "waits", "glimpse.json")),
		syscall.Mkfifo(filepath.Join(allowed, "waits", "glimpse.json"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s := serve(t, func(c *serving.Config) {
		c.S3, c.AdapterDirs, c.AdapterTimeout = s3, []string{allowed, "s3://bucket/adapters/"}, 500*time.Millisecond
	})
	answers := map[string]string{}
	for _, c := range []struct {
		from string
		ok   bool
	}{
		{"good", true}, {"deep/er", true}, {"link-in", true}, {filepath.Join(allowed, "good"), true}, {"./good/../deep/er", true},
		{"shipped", true},
		{"none", false}, {"file", false}, {"empty", false}, {".", false}, {allowed, false},
		{"../allowed-not", false}, {outside, false}, {outside + "-none", false}, {allowed + "/../allowed-not", false}, {"good/../../allowed-not", false},
		{"link-out", false}, {"link-up", false}, {"link-lost", false}, {"leaky", false}, {"/", false}, {"/etc", false}, {"/etc/passwd", false}, {reference + "/judgeq", false},
		{"s3://bucket/other", false}, {"s3://bucket/adapters-secret", false}, {"s3://bucket/adapters/../other", false}, {"s3://bucket/adapters//x", false},
		{"s3://bucket", false}, {"s3://other/adapters/x", false}, {"s3://", false}, {"S3://bucket/adapters/x", false}, {"http://127.0.0.1/x", false}, {"name=good", false},
	} {
		status, answer := s.adapter(t, "POST", "", fmt.Sprintf(`{"name":"x","from":%q}`, c.from))
		if c.ok {
			if status != 200 && !(c.from == "shipped" && status == 409) {
				t.Errorf("%s: %d %s, want 200", c.from, status, answer)
			}
			s.adapter(t, "DELETE", "/x", "")
			continue
		}
		answers[fmt.Sprint(status, strings.ReplaceAll(answer, fmt.Sprintf("%q", c.from), "FROM"))] = c.from
		if status != 400 {
			t.Errorf("%s: %d %s, want 400", c.from, status, answer)
		}
	}
	if len(answers) != 1 {
		t.Errorf("what may not be read and what is not there are told apart: %v", answers)
	}
	if status, answer := s.adapter(t, "POST", "", `{"name":"x","from":"waits"}`); status != 400 {
		t.Errorf("a FIFO: %d %s, want 400 at once", status, answer)
	}
	select {
	case <-asked:
		t.Error("a bucket that was not named was asked")
	default:
	}
	if status, _ := s.adapter(t, "POST", "", `{"name":"x","from":"s3://bucket/adapters/x"}`); status != 504 {
		t.Errorf("a bucket that was named, and does not answer: %d, want 504", status)
	}
	none := serve(t, nil)
	if status, answer := none.adapter(t, "POST", "", fmt.Sprintf(`{"from":%q}`, filepath.Join(allowed, "good"))); status != 400 {
		t.Errorf("without any folder: %d %s, want 400", status, answer)
	}
}

// TestAdministrators: adapters are changed, and their places seen, by an administrator's key alone; without keys by those at the machine.
func TestAdministrators(t *testing.T) {
	shown := "../adapters/reference/judgeq"
	for _, c := range []struct {
		name   string
		change func(c *serving.Config)
		may    map[string]int // what a load answers, by key
	}{
		{"users and administrators", func(c *serving.Config) { c.Keys, c.AdminKeys = []string{"user", "both"}, []string{"admin", "both"} }, map[string]int{"user": 403, "admin": 200, "both": 200, "": 401, "other": 401}},
		{"users alone", func(c *serving.Config) { c.Keys = []string{"user"} }, map[string]int{"user": 403, "": 401}},
		{"administrators alone", func(c *serving.Config) { c.AdminKeys = []string{"admin"} }, map[string]int{"admin": 200, "": 401}},
		{"no keys", func(*serving.Config) {}, map[string]int{"": 200, "any": 200}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, func(config *serving.Config) { config.AdapterDirs = []string{reference}; c.change(config) })
			for key, want := range c.may {
				send := func(method, path, body string) (int, string) {
					t.Helper()
					status, answer, err := s.send(t.Context(), method, path, key, body)
					if err != nil {
						t.Fatal(err)
					}
					return status, fmt.Sprint(answer)
				}
				if status, answer := send("POST", "/v1/adapters", fmt.Sprintf(`{"name":"x","from":%q}`, shown)); status != want {
					t.Errorf("key %q: load: %d %s, want %d", key, status, answer, want)
				}
				status, answer := send("GET", "/v1/adapters", "")
				if want := min(want, 401); status != want && !(want == 401 && status == 200) {
					t.Errorf("key %q: list: %d %s", key, status, answer)
				}
				if strings.Contains(answer, shown) != (want == 200) || strings.Contains(answer, "from") != (want == 200) {
					t.Errorf("key %q: %s", key, answer)
				}
				if status, answer := send("DELETE", "/v1/adapters/x", ""); status != want {
					t.Errorf("key %q: unload: %d %s, want %d", key, status, answer, want)
				}
			}
		})
	}
}

// TestAdaptersAreAddedWhole: of a registry whose second adapter has a name that is taken, none is added.
func TestAdaptersAreAddedWhole(t *testing.T) {
	s := serve(t, func(c *serving.Config) { c.AdapterDirs = []string{reference, ".."} })
	if status, answer := s.adapter(t, "POST", "", `{"name":"x","from":"lookaheadkv"}`); status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
	if status, answer := s.adapter(t, "POST", "", `{"name":"x","from":"adapters"}`); status != 409 {
		t.Errorf("a registry with a name that is taken: %d %s, want 409", status, answer)
	}
	var names []string
	for _, a := range s.model.Adapters() {
		names = append(names, a.Policy+"/"+a.Name)
	}
	slices.Sort(names)
	if want := "[judgeq/shipped lookaheadkv/shipped lookaheadkv/x]"; fmt.Sprint(names) != want {
		t.Errorf("%v, want %s", names, want)
	}
}
