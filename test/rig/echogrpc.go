package rig

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const echoService = "fairway.rig.Echo"

// newEchoServer returns the gRPC side of a backend: the standard health service
// and fairway.rig.Echo with the methods Call (answers with an Echo as JSON) and
// Chat (sends every message of the stream back).
func newEchoServer(b *Backend) *grpc.Server {
	s := grpc.NewServer()
	healthpb.RegisterHealthServer(s, health.NewServer())
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: echoService,
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Call", Handler: echoCall}},
		Streams:     []grpc.StreamDesc{{StreamName: "Chat", Handler: echoChat, ServerStreams: true, ClientStreams: true}},
	}, b)
	return s
}

func echoCall(service any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	b, ok := service.(*Backend)
	if !ok {
		return nil, errors.New("not a backend")
	}
	request := new(wrapperspb.StringValue)
	if err := decode(request); err != nil {
		return nil, err
	}
	headers, _ := metadata.FromIncomingContext(ctx)
	e := Echo{Service: b.Service, Pod: b.Pod, Method: "POST", Path: "/" + echoService + "/Call", Proto: "HTTP/2.0", Headers: headers}
	if host := headers.Get(":authority"); len(host) > 0 {
		e.Host = host[0]
	}
	e.BodyBytes = int64(len(request.Value))
	body, err := json.Marshal(e)
	return wrapperspb.String(string(body)), err
}

func echoChat(_ any, stream grpc.ServerStream) error {
	for {
		message := new(wrapperspb.StringValue)
		err := stream.RecvMsg(message)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.SendMsg(message); err != nil {
			return err
		}
	}
}

// GRPCEcho calls a backend's Echo service.
func GRPCEcho(ctx context.Context, conn *grpc.ClientConn, message string) (*Echo, error) {
	answer := new(wrapperspb.StringValue)
	if err := conn.Invoke(ctx, "/"+echoService+"/Call", wrapperspb.String(message), answer); err != nil {
		return nil, err
	}
	e := new(Echo)
	return e, json.Unmarshal([]byte(answer.Value), e)
}

// GRPCChat opens a stream on which a backend sends every message back. The
// messages are wrapperspb.StringValue.
func GRPCChat(ctx context.Context, conn *grpc.ClientConn) (grpc.ClientStream, error) {
	desc := &grpc.StreamDesc{StreamName: "Chat", ServerStreams: true, ClientStreams: true}
	return conn.NewStream(ctx, desc, "/"+echoService+"/Chat")
}
