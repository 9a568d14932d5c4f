package objectstore_test

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/checkpoints"
	"glimpse/checkpoints/objectstore"
)

// TestCredentialsNameTheirCause: whichever part of the SDK's chain fails, the error is one of credentials, with the part, what
// failed and what to do, and not of the object, which nobody has asked for.
func TestCredentialsNameTheirCause(t *testing.T) {
	// A server that refuses what is asked of STS, SSO and the metadata services.
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/federation"):
			w.Header().Set("X-Amzn-ErrorType", "UnauthorizedException")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"message": "Session token not found or invalid"}`)
		case r.Method == http.MethodPost && r.URL.Path == "/":
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `<ErrorResponse><Error><Code>InvalidIdentityToken</Code><Message>No OpenIDConnect provider found in your account</Message></Error></ErrorResponse>`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer refusing.Close()
	const start = "https://example.awsapps.com/start"
	sso := "[profile sso]\nsso_start_url = " + start + "\nsso_region = eu-west-1\nsso_account_id = 123456789012\nsso_role_name = reader\n"
	session := "[profile sso]\nsso_session = corp\nsso_account_id = 123456789012\nsso_role_name = reader\n[sso-session corp]\nsso_start_url = " + start + "\nsso_region = eu-west-1\n"
	role := "AWS_ROLE_ARN=arn:aws:iam::123456789012:role/reader"
	script := func(text string) string {
		path := filepath.Join(t.TempDir(), "helper")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return "[profile p]\ncredential_process = " + path + "\n"
	}
	for _, c := range []struct {
		name   string
		config string // ~/.aws/config
		env    []string
		token  string // of the SSO cache: when it ends
		want   []string
	}{
		{name: "nothing", env: []string{"AWS_EC2_METADATA_DISABLED=true"}, want: []string{`no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE`, `metadata service: turned off by AWS_EC2_METADATA_DISABLED`}},
		{name: "metadata service that has no role", env: []string{"AWS_EC2_METADATA_SERVICE_ENDPOINT=" + refusing.URL}, want: []string{`no credentials were found`, `metadata service: no EC2 IMDS role found)`}},
		{name: "metadata service that nothing listens at", env: []string{"AWS_EC2_METADATA_SERVICE_ENDPOINT=http://127.0.0.1:9"}, want: []string{`metadata service: no answer from http://127.0.0.1:9: `}},
		{name: "SSO without a login", config: sso, env: []string{"AWS_PROFILE=sso"}, want: []string{`profile "sso": SSO: `, `e8be5486177c5b5392bd9aa76563515b29358e6e.json`, `"aws sso login --profile sso" logs in`}},
		{name: "SSO session without a login", config: session, env: []string{"AWS_PROFILE=sso"}, want: []string{`profile "sso": SSO: failed to read cached SSO token file`, `"aws sso login --profile sso" logs in`}},
		{name: "SSO that has ended", config: sso, env: []string{"AWS_PROFILE=sso"}, token: "2020-01-01T00:00:00Z", want: []string{`SSO: the SSO session has expired or is invalid; "aws sso login --profile sso"`}},
		{name: "SSO that the server refuses", config: sso, env: []string{"AWS_PROFILE=sso", "AWS_ENDPOINT_URL_SSO=" + refusing.URL}, token: "2090-01-01T00:00:00Z", want: []string{`SSO: the server answered 401 UnauthorizedException: Session token not found or invalid; "aws sso login`}},
		{name: "web identity without its file", env: []string{role, "AWS_WEB_IDENTITY_TOKEN_FILE=/no/such/eks/token"}, want: []string{`web identity (AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN): unable to read file at /no/such/eks/token`}},
		{name: "web identity without a role", env: []string{"AWS_WEB_IDENTITY_TOKEN_FILE=/no/such/eks/token"}, want: []string{`AWS_WEB_IDENTITY_TOKEN_FILE is set, want AWS_ROLE_ARN too`}},
		{name: "web identity that the server refuses", env: []string{role, "AWS_WEB_IDENTITY_TOKEN_FILE=/proc/version", "AWS_ENDPOINT_URL_STS=" + refusing.URL}, want: []string{`web identity (AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN): the server answered 400 InvalidIdentityToken: No OpenIDConnect`}},
		{name: "web identity of a profile", config: "[profile p]\nrole_arn = arn:aws:iam::123456789012:role/reader\nweb_identity_token_file = /no/such/token\n", env: []string{"AWS_PROFILE=p"}, want: []string{`profile "p": web identity (web_identity_token_file): unable to read file at /no/such/token`}},
		{name: "process that is not there", config: "[profile p]\ncredential_process = /no/such/helper\n", env: []string{"AWS_PROFILE=p"}, want: []string{`profile "p": credential_process: error in credential_process: exit status 127`}},
		{name: "process that fails", config: script("echo vault is sealed >&2; exit 3"), env: []string{"AWS_PROFILE=p"}, want: []string{`credential_process: error in credential_process: exit status 3`}},
		{name: "process that prints no JSON", config: script("echo AKIASECRET"), env: []string{"AWS_PROFILE=p"}, want: []string{`credential_process: its output is not the JSON of credentials`}},
		{name: "process whose keys have ended", config: script(`echo '{"Version": 1, "AccessKeyId": "a", "SecretAccessKey": "b", "Expiration": "2020-01-01T00:00:00Z"}'`), env: []string{"AWS_PROFILE=p"}, want: []string{`credential_process: they have ended on 2020-01-01 00:00:00 UTC`}},
		{name: "container whose server has none", env: []string{"AWS_CONTAINER_CREDENTIALS_FULL_URI=" + refusing.URL + "/creds"}, want: []string{`container (AWS_CONTAINER_CREDENTIALS_FULL_URI or _RELATIVE_URI): 404 page not found`}},
		{name: "container without its token", env: []string{"AWS_CONTAINER_CREDENTIALS_FULL_URI=" + refusing.URL + "/creds", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=/no/such/pod/token"}, want: []string{`failed to read authorization token from /no/such/pod/token`}},
		{name: "profile that is not there", env: []string{"AWS_PROFILE=typo"}, want: []string{`credentials: profile "typo" (AWS_PROFILE) is in neither ~/.aws/config nor`}},
		{name: "role of a profile that is not there", config: "[profile p]\nrole_arn = arn:aws:iam::123456789012:role/reader\nsource_profile = typo\n", env: []string{"AWS_PROFILE=p"}, want: []string{`credentials: profile "typo"`}},
		{name: "role that the server refuses", config: "[profile p]\nrole_arn = arn:aws:iam::123456789012:role/reader\nsource_profile = keys\n[profile keys]\naws_access_key_id = a\naws_secret_access_key = b\n", env: []string{"AWS_PROFILE=p", "AWS_ENDPOINT_URL_STS=" + refusing.URL}, want: []string{`profile "p": role (role_arn): the server answered 400 InvalidIdentityToken`}},
		{name: "key without its secret", env: []string{"AWS_ACCESS_KEY_ID=a", "AWS_EC2_METADATA_DISABLED=true"}, want: []string{`AWS_ACCESS_KEY_ID is set without AWS_SECRET_ACCESS_KEY`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			home := t.TempDir()
			for _, v := range os.Environ() {
				if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "AWS_") {
					t.Setenv(name, "")
					os.Unsetenv(name)
				}
			}
			t.Setenv("HOME", home) // which the SDK reads once for these two
			t.Setenv("AWS_CONFIG_FILE", filepath.Join(home, ".aws", "config"))
			t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(home, ".aws", "credentials"))
			if err := os.MkdirAll(filepath.Join(home, ".aws", "sso", "cache"), 0o700); err != nil {
				t.Fatal(err)
			}
			write := func(name, text string) {
				if err := os.WriteFile(filepath.Join(home, ".aws", name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write("config", c.config)
			if c.token != "" {
				write(fmt.Sprintf("sso/cache/%x.json", sha1.Sum([]byte(start))), `{"accessToken": "x", "expiresAt": "`+c.token+`", "region": "eu-west-1", "startUrl": "`+start+`"}`)
			}
			for _, v := range c.env {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv(name, value)
			}
			_, err := objectstore.ReadAdapter(context.Background(), "s3://test/adapters/a", objectstore.Settings{Endpoint: "http://127.0.0.1:9", Region: "us-east-1"})
			if err == nil || !errors.Is(err, objectstore.ErrDenied) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, checkpoints.ErrNotAdapter) {
				t.Fatalf("error %v, want one of credentials", err)
			}
			if text := err.Error(); strings.Contains(text, "AKIASECRET") || strings.Contains(text, "operation error") {
				t.Errorf("error %q has what a process printed, or the SDK's names", text)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want it to say %q", err, want)
				}
			}
		})
	}
}
