# Stands in for Lambda on this machine: calls function.py for each request.
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from function import handler


class Lambda(BaseHTTPRequestHandler):
    def do_POST(self):
        event = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        try:
            answer = handler(event, None)
        except Exception as error:
            self.send_header("x-amz-function-error", "Unhandled")
            answer = {"errorType": type(error).__name__, "errorMessage": str(error)}
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Lambda).serve_forever()
