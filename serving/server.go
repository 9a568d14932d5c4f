package serving

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"glimpse/checkpoints/objectstore"
	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/serving/constraint"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Config is what a server is made of.
type Config struct {
	Name   string // that requests may call the model by
	Policy string // of requests that name none
	Budget eviction.Budget
	Keep   engine.KeepRules     // what of conversations stays where a request does not say
	Choice model.SamplingChoice // how tokens are chosen where a request does not say
	MaxNew int                  // most tokens of an answer where a request does not say

	Rows   int   // most answers that are decoded together
	Queue  int   // most answers that wait beside them
	Memory int64 // of sessions and shared prefixes, in bytes; 0: no limit
	Prefix int64 // the part of it that shared prefixes may take; 0: nothing is shared
	// PrefixDir, where it is not "", is a folder that keeps shared prefixes, of at most PrefixDirSize bytes.
	PrefixDir     string
	PrefixDirSize int64
	// ContextDir, where it is not "", is a folder that keeps compressed contexts and their names, of at most ContextDirSize bytes.
	ContextDir     string
	ContextDirSize int64
	// SharedPrefixes lets the prompts of one key reuse another key's, which the time of an answer and its cached_tokens tell.
	SharedPrefixes bool
	MaxGap         time.Duration // between two tokens of an answer, that prompts of others may cause
	Seed           uint64
	// ReasoningFormat says where thoughts are told where a request does not: see CheckReasoningFormat.
	ReasoningFormat string

	// Record ("": nothing is recorded) is a folder or s3:// name that a share of the answers are written to with their prompts,
	// as training data, up to so many bytes of all that is there.
	Record      string
	RecordShare float64
	RecordLimit int64
	S3          objectstore.Settings
	// VerifyShare of greedy answers are given once more with the full cache, when there is nothing to answer.
	VerifyShare float64
	// Promise (nil: none) is what was certified of Policy and Budget, which is watched on the answers that are verified. OnBreach says what
	// is done when it is broken, see Breaches; "" is BreachLog.
	Promise  *eviction.Promise
	OnBreach string
	// Shadow ("": none) is an adapter that is compared then with what a share of the answers were given with.
	Shadow      string
	ShadowShare float64

	MaxBody int64 // bytes of a request
	Access
	// AdapterDirs are folders and s3:// names below which lie the adapters that may be loaded; those that come with the program may
	// always. One takes AdapterTimeout at the most; 0: DefaultAdapterTimeout.
	AdapterDirs    []string
	AdapterTimeout time.Duration
	// StrictFields: fields that change nothing are refused, not ignored.
	StrictFields bool
	Version      string
	Log          *slog.Logger
}

// Validate is an error that New would return, too, before there is a model.
func (c *Config) Validate() error {
	if c.AdapterTimeout < 0 {
		return fmt.Errorf("adapter timeout: got %v, want 0 or more", c.AdapterTimeout)
	}
	if c.OnBreach != "" && !slices.Contains(Breaches(), c.OnBreach) {
		return fmt.Errorf("on breach: got %q, want one of: %s", c.OnBreach, strings.Join(Breaches(), ", "))
	}
	return cmp.Or(c.Access.Validate(), checkAdapterDirs(c.AdapterDirs))
}

// Server answers OpenAI's API with one model.
type Server struct {
	Config
	model   *engine.Model
	worker  *worker
	metrics *metrics
	mux     *http.ServeMux
	handler http.Handler // mux behind what admits requests
	roles   map[[sha256.Size]byte]role
	started time.Time
	// standard is the policy of requests that name none, with its adapter, whatever others come and go.
	standard engine.Policy
	loads    *loads
	contexts *contexts
	watch    *watch // of the promise; nil: none is watched

	mu       sync.Mutex // of the model's adapters and of the policies that are made with them; nobody waits for anything with it
	policies map[evictionChoice]engine.Policy

	wordsMu sync.Mutex
	words   *constraint.Vocabulary // of the last constrained answer
	kept    []int32                // its special tokens that are text

	draining atomic.Bool
	open     atomic.Int64 // answers that run or wait
	ignored  ignoredLog
	patience time.Duration // see answerWriter
	ends     pace
	intake   *intake
}

// pace is how fast answers end. Its zero value is as fast as can be.
type pace struct {
	mu      sync.Mutex
	last    time.Time
	between time.Duration // two ends, a running mean
}

// begun is told that an answer was asked for while there was no other: time without any tells nothing.
func (p *pace) begun(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = now
}

// ended is told that n answers have.
func (p *pace) ended(n int, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.last.IsZero() {
		took := now.Sub(p.last) / time.Duration(n)
		p.between = cmp.Or(p.between, took)
		p.between += (took - p.between) / 8
	}
	p.last = now
}

// longestRetry bounds what clients are told to wait.
const longestRetry = 60 * time.Second

// until is the time in which n answers end, in whole seconds, at least one.
func (p *pace) until(n int64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(max(time.Second, time.Duration(math.Ceil(float64(n)*p.between.Seconds()))*time.Second), longestRetry)
}

// New starts a server for a model, which it owns from then on. Close ends it.
func New(m *engine.Model, c Config) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.AdapterTimeout = cmp.Or(c.AdapterTimeout, DefaultAdapterTimeout)
	m.NameAdapters()
	rt := eviction.NewRuntime(m.Model)
	e, err := engine.New(rt, c.Rows)
	if err != nil {
		return nil, err
	}
	if c.PrefixDir != "" && c.Prefix <= 0 {
		return nil, fmt.Errorf("serve: got a folder for shared prefixes, %s, and no memory for them, want some", c.PrefixDir)
	}
	if c.Prefix > 0 {
		rt.Prefixes = kvcache.NewPrefixCache(m.Model, c.Prefix)
		if c.PrefixDir != "" {
			if err := rt.Prefixes.KeepIn(context.Background(), m.Model, c.PrefixDir, c.PrefixDirSize, func(err error) {
				c.Log.Warn("shared prefixes are not kept on disk, until a page can be written again", "error", err.Error())
			}); err != nil {
				return nil, err
			}
		}
	}
	if c.Memory > 0 {
		if e.Budget = c.Memory - c.Prefix; e.Budget <= 0 {
			return nil, fmt.Errorf("serve: got %d bytes of memory for sessions and %d of it for shared prefixes, want more", c.Memory, c.Prefix)
		}
	}
	s := &Server{
		Config: c, model: m, metrics: newMetrics(c.Version), mux: http.NewServeMux(), started: time.Now(),
		roles: c.roles(), policies: make(map[evictionChoice]engine.Policy), loads: newLoads(), patience: patience,
	}
	if s.standard, err = m.PolicyWith(c.Policy, ""); err != nil {
		return nil, err
	}
	if c.Keep.Fair && s.standard.Configured.Name != engine.Lossless { // else every request would be refused
		if err := s.standard.CheckFair(); err != nil {
			return nil, fmt.Errorf("serve: keep: %w", err)
		}
	}
	var files *contextFiles
	if c.ContextDir != "" {
		if files, err = openContextFiles(context.Background(), m.Model, &c); err != nil {
			return nil, err
		}
	}
	if s.contexts, err = newContexts(files); err != nil {
		return nil, err
	}
	if s.handler, err = s.admitted(s.mux); err != nil {
		return nil, err
	}
	s.intake = newIntake(&c, s.metrics.busy.Inc)
	s.worker = newWorker(e, rt, &c, s.metrics)
	s.watch = newWatch(&c, s.metrics)
	if s.worker.idle, err = newIdle(s.worker, m, &c, s.watch); err != nil {
		return nil, err
	}
	if c.Record != "" {
		if s.worker.recorder, err = newRecorder(context.Background(), m.Model, &c, s.metrics); err != nil {
			return nil, fmt.Errorf("record: %w", err)
		}
	}
	s.routes()
	go s.worker.runEngine()
	return s, nil
}

// Standard is the policy of requests that name none.
func (s *Server) Standard() engine.Policy { return s.standard }

// Drain refuses requests from now on, while those that are there go on.
func (s *Server) Drain() { s.draining.Store(true) }

// AbortAnswers ends the answers that go on.
func (s *Server) AbortAnswers() { s.worker.do(func() { s.worker.failAll(errStopped) }) }

// Loading answers requests while the model is opened.
func Loading(w http.ResponseWriter, r *http.Request) {
	e := failure(http.StatusServiceUnavailable, serverError, "loading", "the model is being loaded")
	e.retryAfter = 5 * time.Second
	writeError(w, r, e)
}

// Close cancels what goes on and closes the model.
func (s *Server) Close() error {
	s.Drain()
	s.loads.waitLoads()
	close(s.worker.stop)
	<-s.worker.stopped
	if p := s.worker.runtime.Prefixes; p != nil {
		p.Stop()
	}
	s.contexts.files.stop()
	s.worker.recorder.stop()
	return s.model.Close()
}

func (s *Server) routes() {
	s.handle("POST /v1/chat/completions", s.chatCompletions)
	s.handle("POST /v1/completions", s.completions)
	s.handle("POST /v1/responses", s.responses)
	s.handle("POST "+anthropicPaths, s.messages)
	s.handle("POST "+anthropicPaths+"/count_tokens", s.countTokens)
	s.handle("GET /v1/models", s.listModels)
	s.handle("GET /v1/models/{model...}", s.getModel)
	s.handle("POST /tokenize", s.tokenize)
	s.handle("GET /tokenizer_info", s.tokenizerInfo)
	s.handle("POST /detokenize", s.detokenize)
	s.handle("POST /apply-template", s.applyTemplate)
	s.handle("GET /v1/contexts", s.listContexts)
	s.handle("POST /v1/contexts", s.makeContext)
	s.handle("GET /v1/contexts/{name}", s.getContext)
	s.handle("DELETE /v1/contexts/{name}", s.deleteContext)
	s.handle("GET /v1/adapters", s.listAdapters)
	s.handle("POST /v1/adapters", s.forAdministrators(s.loadAdapter))
	s.handle("DELETE /v1/adapters/{name}", s.forAdministrators(s.unloadAdapter))
	for _, path := range []string{"embeddings", "images/generations", "audio/speech", "audio/transcriptions", "moderations", "rerank"} {
		s.handle("POST /v1/"+path, func(http.ResponseWriter, *http.Request) error {
			return failure(http.StatusNotImplemented, invalidRequest, "not_implemented", "/v1/%s: the server runs a language model that answers with text", path)
		})
	}
	s.mux.HandleFunc("GET /health", s.health)
	s.mux.Handle("GET /metrics", s.guarded(promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{})))
	s.mux.Handle("GET /{$}", http.HandlerFunc(s.page))
	s.mux.Handle("GET /page/", http.HandlerFunc(s.page))
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if allowed := s.methods(r); len(allowed) > 0 {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			writeError(w, r, failure(http.StatusMethodNotAllowed, invalidRequest, "method_not_allowed", "%s %.100s: want %s", r.Method, r.URL.Path, strings.Join(allowed, " or ")))
			return
		}
		writeError(w, r, failure(http.StatusNotFound, invalidRequest, "not_found", "%s %.100s: there is no such endpoint", r.Method, r.URL.Path))
	})
}

// methods are those that the path of a request has an endpoint for.
func (s *Server) methods(r *http.Request) (allowed []string) {
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete} {
		if _, pattern := s.mux.Handler(&http.Request{Method: method, URL: r.URL, Host: r.Host}); pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	return allowed
}

// handle serves an endpoint that needs a key. What it returns is told as an error, unless the answer has begun.
func (s *Server) handle(pattern string, f func(w http.ResponseWriter, r *http.Request) error) {
	s.mux.Handle(pattern, s.guarded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := s.intake.body(w, r)
		defer body.endBody()
		r.Body = body
		ignored := &ignoredFields{strict: s.StrictFields, header: w.Header()}
		err := f(w, r.WithContext(context.WithValue(r.Context(), ignoredKey{}, ignored)))
		s.ignored.addNames(s.Log, ignored.names, time.Now())
		if err == nil {
			return
		}
		// A client that may yet read, though it seems to be gone, must not take for a whole answer what is none: a part, or 200 with nothing.
		if a, ok := w.(*answerWriter); errors.Is(err, context.Canceled) || r.Context().Err() != nil || ok && a.begun() != 0 {
			panic(http.ErrAbortHandler)
		}
		if ofModel(err).status >= 500 {
			s.Log.Error("request failed", "id", w.Header().Get("X-Request-Id"), "path", r.URL.Path, "error", err.Error())
		}
		writeError(w, r, err)
	})))
}

// statusGone is in the log for a client that was gone before its answer began, as nginx has it.
const statusGone = 499

// ServeHTTP gives every request an id and a line in the log, without what was said.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("X-Request-Id")
	if id == "" || len(id) > 100 || strings.ContainsFunc(id, func(c rune) bool { return c < ' ' || c > '~' }) {
		id = "req-" + rand.Text()
	}
	w.Header().Set("X-Request-Id", id)
	if strings.HasPrefix(r.URL.Path, anthropicPaths) {
		w.Header().Set("Request-Id", id)
	}
	start, answer := time.Now(), newAnswerWriter(w, s.patience)
	level := slog.LevelInfo
	if r.Method == http.MethodGet { // of who watches
		level = slog.LevelDebug
	}
	defer func() {
		s.Log.Log(r.Context(), level, "request", "id", id, "method", r.Method, "path", r.URL.Path, "status", cmp.Or(answer.begun(), statusGone), "ms", time.Since(start).Milliseconds())
	}()
	present, stop := whilePresent(answer, r)
	defer stop()
	defer answer.endAnswer()
	defer func() { s.recovered(recover(), answer, r) }()
	s.handler.ServeHTTP(answer, present)
}

// recovered answers a request whose handler has panicked with err, other than to hang up; nil: it has not. An answer that
// has begun is cut off, so that its client sees that it is no whole one.
func (s *Server) recovered(err any, w *answerWriter, r *http.Request) {
	switch {
	case err == nil:
		return
	case err == http.ErrAbortHandler:
		panic(err)
	}
	id := w.Header().Get("X-Request-Id")
	s.metrics.panics.Inc()
	s.Log.Error("a handler panicked", "id", id, "path", r.URL.Path, "panic", fmt.Sprint(err), "stack", string(debug.Stack()))
	if w.begun() != 0 {
		panic(http.ErrAbortHandler)
	}
	writeError(w, r, failure(http.StatusInternalServerError, serverError, "internal_error", "the server failed at this request: its log says more of %s", id))
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	status := map[string]any{"status": "ok"}
	var warnings []string
	if k := s.model.RoundedKeys(); k != nil && !k.Tolerable() {
		warnings = append(warnings, k.Warning())
	}
	if state, warning := s.watch.health(); state != nil {
		if status["calibration"] = state; warning != "" {
			warnings = append(warnings, warning)
		}
	}
	if len(warnings) > 0 {
		status["warnings"] = warnings
	}
	if s.draining.Load() {
		status["status"] = "draining"
		writeJSON(w, http.StatusServiceUnavailable, status)
		return
	}
	writeJSON(w, http.StatusOK, status)
}

// policy makes the policy of a request, once for all requests that ask for the same.
func (s *Server) policy(e evictionChoice) (engine.Policy, error) {
	if e.Policy == s.Policy && (e.Adapter == "" || e.Adapter == s.standard.Adapter) {
		return s.standard, nil
	}
	key := evictionChoice{Policy: e.Policy, Adapter: e.Adapter}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.policies[key]; ok {
		return p, nil
	}
	var p engine.Policy
	var err error
	if e.Adapter == "" {
		p, err = s.model.FirstPolicy(e.Policy)
	} else {
		p, err = s.model.PolicyWith(e.Policy, e.Adapter)
	}
	if err != nil {
		return p, refuse("eviction", "%v", err)
	}
	if len(s.policies) >= maxPolicies { // of names that clients have made up
		clear(s.policies)
	}
	s.policies[key] = p
	return p, nil
}

// maxPolicies bounds the policies that are kept.
const maxPolicies = 256

// admit counts answers in, or refuses them where too many wait.
func (s *Server) admit(n int) (release func(), err error) {
	if s.draining.Load() {
		return nil, failure(http.StatusServiceUnavailable, serverError, "shutting_down", "the server is shutting down")
	}
	most := int64(s.Rows + s.Queue)
	open := s.open.Add(int64(n))
	if open == int64(n) {
		s.ends.begun(time.Now())
	}
	if open > most {
		s.open.Add(-int64(n))
		s.metrics.rejected.Inc()
		e := failure(http.StatusTooManyRequests, "rate_limit_error", "queue_full", "%d answers run or wait, and %d more were asked for: want at most %d", open-int64(n), n, most)
		e.retryAfter = s.ends.until(open - most)
		return nil, e
	}
	return func() {
		s.open.Add(-int64(n))
		s.ends.ended(n, time.Now())
	}, nil
}
